//! What happens to a Redis server, and to the way there, while clients hold and wait: the suite's
//! cases know faults that every store can meet, these are the ones of Redis.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod connections;
#[cfg(unix)]
mod data;
#[cfg(unix)]
mod network;
#[cfg(unix)]
mod opening;
#[cfg(unix)]
mod proxies;
#[cfg(unix)]
mod stalls;
#[cfg(unix)]
mod waiters;
#[cfg(unix)]
mod world;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::foreign::missing;
    use conformance_tests::servers::{Nutcracker, RedisServer};

    let missing = || missing(RedisServer::PROGRAM);
    Ground::main("faults-of-redis", missing, 4, |ground| {
        ground
            .trial(data::flushall_is_a_loss_and_tokens_still_grow)
            .trial(data::a_restart_without_data_is_a_loss_and_tokens_still_grow)
            .trial(data::a_restart_with_data_keeps_holds_and_queue)
            .trial(data::a_full_server_keeps_its_holds_and_serves_later)
            .trial(data::a_server_that_became_a_replica_ends_holds_in_time)
            .trial(connections::killed_connections_lose_neither_holds_nor_waiters)
            .trial(connections::flushed_scripts_are_not_noticed)
            .trial(connections::nothing_is_left_but_tokens)
            .trial(connections::who_waits_no_more_hears_no_more)
            .trial(opening::opening_rides_out_a_server_that_starts_later)
            .trial(opening::opening_gives_up_when_its_wait_is_over)
            .trial(opening::opening_ends_at_once_where_the_server_refuses)
            .trial(stalls::a_short_pause_costs_no_hold)
            .trial(stalls::a_long_pause_ends_the_hold_before_another_begins)
            .trial(stalls::a_short_freeze_costs_no_hold)
            .trial(stalls::a_long_freeze_ends_the_hold_before_another_begins)
            .trial(stalls::what_was_given_up_during_a_freeze_leaves_no_hold)
            .trial(waiters::a_killed_waiter_costs_three_rechecks_at_most)
            .trial(waiters::a_stopped_waiter_costs_three_rechecks_at_most)
            .trial(waiters::a_lost_message_costs_one_recheck_at_most)
            .trial(network::a_grant_whose_reply_is_dropped_is_one_hold)
            .trial(network::a_release_whose_reply_is_dropped_is_a_release)
            .trial(network::a_black_hole_each_way_ends_the_hold_in_time)
            .needing(conformance_tests::foreign::missing(Nutcracker::PROGRAM))
            .trial(proxies::a_list_that_the_proxy_refuses_says_so_and_hits_nobody_else)
    })
}
