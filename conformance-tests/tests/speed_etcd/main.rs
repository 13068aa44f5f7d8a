//! How fast the store in etcd is, against the least that the server itself needs for the same.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_etcd` shows what
//! a program sees.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod crowd;
#[cfg(unix)]
mod solo;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::foreign::missing;
    use conformance_tests::servers::{EtcdCluster, guardian};

    if let Some(code) = guardian::serve() {
        return code;
    }
    conformance_tests::Ground::new("speed-of-etcd", missing(EtcdCluster::PROGRAM))
        .trial(solo::a_cycle_is_two_round_trips)
        .trial(solo::a_cycle_costs_little_more_than_its_two_requests)
        .trial(crowd::eight_through_the_proxy_hand_over_in_one_trip)
        .trial(crowd::eight_and_sixty_four_on_loopback)
        .trial(crowd::a_lock_that_was_taken_often_is_as_fast)
        // One after the other: each wants the machine.
        .run(1)
}
