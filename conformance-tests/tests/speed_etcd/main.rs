//! The speed of the store in etcd, compared with the least that the server itself needs.
//!
//! The tests print their figures. The bounds are ratios within one run, and round trips, so that they hold on
//! a busy machine with two processors. `cargo test --release -p conformance-tests --test speed_etcd` shows
//! what a program sees.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod crowd;
mod modes;
mod solo;
mod waiters;

use std::process::ExitCode;

use conformance_tests::foreign::missing;
use conformance_tests::servers::EtcdCluster;
use conformance_tests::{TestSuite, mode_speed};

use modes::Etcd;

fn main() -> ExitCode {
    // One after the other: each wants the machine.
    TestSuite::main(1, tests)
}

fn tests() -> TestSuite {
    let suite = TestSuite::new("speed-of-etcd", missing(EtcdCluster::PROGRAM))
        .test(solo::cycle_is_two_round_trips)
        .test(solo::section_is_two_round_trips)
        .test(solo::cycle_costs_little_more_than_its_requests)
        .test(crowd::eight_hand_over_in_one_round_trip)
        .test(crowd::eight_and_sixty_four_on_loopback)
        .test(crowd::often_taken_lock_stays_fast)
        .test(waiters::two_thousand_waiters_cost_the_server_little);
    mode_speed::add::<Etcd>(suite)
}
