//! How fast the store in etcd is, against the least that the server itself needs for the same.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_etcd` shows what
//! a program sees.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod crowd;
mod solo;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::missing;
use conformance_tests::servers::EtcdCluster;

fn main() -> ExitCode {
    // One after the other: each wants the machine.
    TestSuite::main(1, tests)
}

fn tests() -> TestSuite {
    TestSuite::new("speed-of-etcd", missing(EtcdCluster::PROGRAM))
        .test(solo::a_cycle_is_two_round_trips)
        .test(solo::a_cycle_costs_little_more_than_its_two_requests)
        .test(crowd::eight_through_the_proxy_hand_over_in_one_trip)
        .test(crowd::eight_and_sixty_four_on_loopback)
        .test(crowd::a_lock_that_was_taken_often_is_as_fast)
}
