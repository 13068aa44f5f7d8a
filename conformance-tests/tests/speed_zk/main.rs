//! How fast the store in ZooKeeper is, against the least that the server itself needs for the same, and
//! against others.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_zk` shows what a
//! program sees; without optimisation our side of a ratio costs several times as much, so the bounds
//! of processor time are wider there.

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
    use conformance_tests::Ground;
    use conformance_tests::foreign::Curator;
    use conformance_tests::servers::{ZkServer, guardian};

    if let Some(code) = guardian::serve() {
        return code;
    }
    let alone = Ground::new("speed-of-zk", ZkServer::missing())
        .trial(solo::a_cycle_is_three_round_trips)
        .trial(solo::a_cycle_costs_little_more_than_its_requests)
        .trial(crowd::eight_through_the_proxy_hand_over_in_one_trip)
        .trial(crowd::eight_and_sixty_four_are_served_alike)
        .trial(crowd::two_thousand_waiters_cost_the_server_little);
    let missing = ZkServer::missing().or_else(Curator::missing);
    let beside = Ground::new("speed-of-zk-and-curator", missing)
        .trial(crowd::eight_hand_over_faster_than_curator);
    // One after the other: each wants the machine.
    alone.and(beside).run(1)
}
