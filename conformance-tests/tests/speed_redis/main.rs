//! How fast the store in Redis is, against the least that the server itself needs for the same.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_redis` shows
//! what a program sees; without optimisation our side of a ratio costs several times as much, so the
//! bounds of processor time are wider there.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod bare;
mod crowd;
mod holds;
mod modes;
mod peers;
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
    TestSuite::new("speed-of-redis", missing(RedisServer::PROGRAM))
        .test(solo::cycle_is_two_round_trips)
        .test(solo::cycle_costs_little_more_than_its_scripts)
        .test(crowd::eight_through_the_proxy_hand_over_in_one_trip)
        .test(crowd::eight_and_sixty_four_keep_up_with_a_bare_list)
        .test(peers::eight_hand_over_faster_than_with_rslock)
        .test(crowd::tasks_of_one_distant_client_hand_over_as_fast_as_clients)
        .test(crowd::tasks_of_one_client_hand_over_as_fast_as_clients)
        .test(crowd::many_locks_of_one_client_share_its_connection)
        .test(holds::twenty_thousand_holds_are_kept_with_little_work)
        .test(waiting::two_thousand_waiters_cost_the_server_little)
        .test(mode_speed::modes_alone_cost_as_many_trips_as_exclusive::<Redis>)
        .test(mode_speed::readers_do_not_wait_for_readers::<Redis>)
        .test(mode_speed::readers_of_one_client_are_let_in_at_once::<Redis>)
        .test(mode_speed::waiting_readers_are_let_in_together::<Redis>)
        .test(mode_speed::writer_waits_for_those_who_read_alone::<Redis>)
        .test(mode_speed::writers_hand_over_as_fast_as_exclusive::<Redis>)
        .test(mode_speed::four_permits_are_four_times_as_fast::<Redis>)
        .test(mode_speed::four_names_cost_as_long_as_one::<Redis>)
        .test(modes::modes_cost_little_more_than_the_exclusive_scripts)
}
