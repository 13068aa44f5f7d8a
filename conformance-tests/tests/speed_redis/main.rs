//! How fast the store in Redis is, against the least that the server itself needs for the same.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_redis` shows
//! what a program sees; without optimisation our side of a ratio costs several times as much, so the
//! bounds of processor time are wider there.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod bare;
mod crowd;
mod failovers;
mod holds;
mod modes;
mod peers;
mod redlock;
mod solo;
mod waiting;

use std::process::ExitCode;

use conformance_tests::foreign::missing;
use conformance_tests::servers::RedisServer;
use conformance_tests::{TestSuite, mode_speed};

use modes::Redis;

fn main() -> ExitCode {
    // One after the other: each wants the machine.
    TestSuite::main(1, tests)
}

fn tests() -> TestSuite {
    let suite = TestSuite::new("speed-of-redis", missing(RedisServer::PROGRAM))
        .test(solo::cycle_is_two_round_trips)
        .test(solo::section_is_two_round_trips)
        .test(solo::cycle_behind_sentinels_is_two_round_trips)
        .test(solo::cycle_in_a_cluster_is_two_round_trips)
        .test(failovers::acks_cost_no_round_trip_of_the_client)
        .test(failovers::quarantine_costs_little)
        .test(redlock::cycle_of_five_nodes_is_two_round_trips)
        .test(redlock::eight_clients_of_five_nodes_hand_over)
        .test(solo::cycle_costs_little_more_than_its_scripts)
        .test(crowd::eight_through_the_proxy_hand_over_in_one_trip)
        .test(crowd::eight_in_a_cluster_hand_over_in_one_trip)
        .test(crowd::eight_and_sixty_four_keep_up_with_a_bare_list)
        .test(peers::eight_hand_over_faster_than_with_rslock)
        .test(crowd::tasks_of_one_distant_client_hand_over_as_fast_as_clients)
        .test(crowd::tasks_of_one_client_hand_over_as_fast_as_clients)
        .test(crowd::many_locks_of_one_client_share_its_connection)
        .test(holds::twenty_thousand_holds_are_kept_with_little_work)
        .test(holds::ten_thousand_holds_in_a_cluster_are_kept_with_little_work)
        .test(waiting::two_thousand_waiters_cost_the_server_little)
        .test(modes::modes_cost_little_more_than_the_exclusive_scripts);
    mode_speed::add::<Redis>(suite)
}
