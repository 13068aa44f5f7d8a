//! The speed of the store in etcd, compared with the least that the server itself needs.
//!
//! The tests print their figures. The bounds are ratios within one run, and round trips, so that they hold on
//! a busy machine with two processors. `cargo test --release -p conformance-tests --test speed_etcd` shows
//! what a program sees.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod crowd;
mod modes;
mod solo;

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
    TestSuite::new("speed-of-etcd", missing(EtcdCluster::PROGRAM))
        .test(solo::cycle_is_two_round_trips)
        .test(solo::cycle_costs_little_more_than_its_requests)
        .test(crowd::eight_hand_over_in_one_round_trip)
        .test(crowd::eight_and_sixty_four_on_loopback)
        .test(crowd::often_taken_lock_stays_fast)
        .test(mode_speed::modes_alone_cost_as_many_trips_as_exclusive::<Etcd>)
        .test(mode_speed::readers_do_not_wait_for_readers::<Etcd>)
        .test(mode_speed::readers_of_one_client_are_let_in_at_once::<Etcd>)
        .test(mode_speed::waiting_readers_are_let_in_together::<Etcd>)
        .test(mode_speed::writer_waits_for_those_who_read_alone::<Etcd>)
        .test(mode_speed::writers_hand_over_as_fast_as_exclusive::<Etcd>)
        .test(mode_speed::four_permits_are_four_times_as_fast::<Etcd>)
        .test(mode_speed::four_names_cost_as_long_as_one::<Etcd>)
}
