//! How fast the store in ZooKeeper is, against the least that the server itself needs for the same, and
//! against others.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_zk` shows what a
//! program sees; without optimisation our side of a ratio costs several times as much, so the bounds
//! of processor time are wider there.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod crowd;
mod modes;
mod solo;

use std::process::ExitCode;

use conformance_tests::foreign::Curator;
use conformance_tests::servers::ZkServer;
use conformance_tests::{TestSuite, mode_speed};

use modes::Zk;

fn main() -> ExitCode {
    // One after the other: each wants the machine.
    TestSuite::main(1, tests)
}

fn tests() -> TestSuite {
    let alone = TestSuite::new("speed-of-zk", ZkServer::missing())
        .test(solo::cycle_is_three_round_trips)
        .test(solo::section_is_three_round_trips)
        .test(solo::cycle_costs_little_more_than_its_requests)
        .test(crowd::eight_through_the_proxy_hand_over_in_one_trip)
        .test(crowd::eight_and_sixty_four_are_served_equally_fast)
        .test(crowd::two_thousand_waiters_cost_the_server_little);
    let missing = ZkServer::missing().or_else(Curator::missing);
    let beside = TestSuite::new("speed-of-zk-and-curator", missing)
        .test(crowd::eight_hand_over_faster_than_curator);
    mode_speed::add::<Zk>(alone).and(beside)
}
