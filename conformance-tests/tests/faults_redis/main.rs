//! What happens to a Redis server, and to the way there, while clients hold and wait: the suite's
//! cases know faults that every store can meet, these are the ones of Redis.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod admission;
mod carried_reads;
mod clocks;
mod cluster;
mod cluster_failovers;
mod cluster_outages;
mod cluster_steps;
mod connections;
mod data;
mod network;
mod opening;
mod proxies;
mod quarantine;
mod redlock;
mod redlock_faults;
mod redlock_guards;
mod redlock_nodes;
mod redlock_steps;
mod sections;
mod sentinel;
mod sentinel_failovers;
mod shards;
mod shared;
mod slot_moves;
mod stalls;
mod waiters;
mod world;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::missing;
use conformance_tests::servers::{Nutcracker, RedisServer};

fn main() -> ExitCode {
    TestSuite::main(8, tests)
}

fn tests() -> TestSuite {
    let suite = TestSuite::new("faults-of-redis", missing(RedisServer::PROGRAM))
        .test(data::flushall_is_a_loss_and_tokens_still_grow)
        .test(data::restart_without_data_is_a_loss_and_tokens_still_grow)
        .test(data::restart_with_data_keeps_holds_and_queue)
        .test(data::full_server_keeps_its_holds_and_serves_later)
        .test(data::server_that_became_a_replica_ends_holds_in_time)
        .test(shared::flushall_ends_all_shared_holds)
        .test(shared::restored_data_keep_the_holders_that_are_in_them)
        .test(shared::lost_leases_end_the_holds_and_let_no_other_in_before)
        .test(shared::leases_without_their_lock_are_no_holds)
        .test(connections::killed_connections_lose_neither_holds_nor_waiters)
        .test(connections::flushed_scripts_cause_no_error)
        .test(connections::guarded_work_outlives_runtimes_of_callers)
        .test(connections::only_tokens_are_left)
        .test(connections::stops_listening_after_last_waiter)
        .test(opening::opening_waits_for_a_server_that_starts_later)
        .test(opening::opening_gives_up_when_its_wait_is_over)
        .test(opening::opening_ends_at_once_if_the_server_refuses)
        .test(opening::endless_timeouts_are_long_ones)
        .test(stalls::short_pause_costs_no_hold)
        .test(stalls::long_pause_ends_the_hold_before_another_begins)
        .test(stalls::short_freeze_costs_no_hold)
        .test(stalls::long_freeze_ends_the_hold_before_another_begins)
        .test(stalls::acquires_cancelled_during_a_freeze_leave_no_hold)
        .test(stalls::frozen_primary_is_left_within_the_quarantine)
        .test(waiters::killed_waiter_costs_three_rechecks_at_most)
        .test(waiters::stopped_waiter_costs_three_rechecks_at_most)
        .test(waiters::lost_message_costs_one_recheck_at_most)
        .test(network::grant_without_a_reply_is_one_hold)
        .test(network::release_without_a_reply_is_a_release)
        .test(network::silent_connection_ends_the_hold_in_time)
        .test(sentinel::killed_master_keeps_replicated_holds_and_serves_waiters)
        .test(sentinel::usable_soon_after_each_promotion)
        .test(sentinel::idle_client_follows_a_graceful_failover)
        .test(sentinel::frozen_master_that_comes_back_is_left)
        .test(sentinel::two_dead_sentinels_are_not_noticed)
        .test(sentinel::highest_epoch_wins_over_first_answers)
        .test(sentinel::later_epoch_is_followed)
        .test(sentinel::silent_sentinels_delay_no_failover)
        .test(sentinel::sentinels_that_are_restarted_in_a_circle_are_not_noticed)
        .test(sentinel::read_only_reply_makes_the_client_ask_again)
        .test(sentinel::server_that_is_no_master_is_refused)
        .test(sentinel::unknown_name_is_refused_with_the_known_ones)
        .test(sentinel::no_answer_of_any_sentinel_is_unavailable)
        .test(sentinel::name_unknown_to_one_sentinel_is_unavailable_while_others_are_away)
        .test(sentinel::refusal_of_one_sentinel_is_unavailable_while_others_are_slow)
        .test(sentinel::sentinels_with_a_password_get_theirs)
        .test(sentinel::failover_with_tls);
    let no_proxy = missing(RedisServer::PROGRAM).or_else(|| missing(Nutcracker::PROGRAM));
    let proxied = TestSuite::new("redis-behind-nutcracker", no_proxy)
        .test(proxies::list_refused_by_the_proxy_fails_alone)
        .test(proxies::server_that_the_proxy_cannot_reach_is_unavailable);
    let suite = redlock::add(shards::add(cluster::add(quarantine::add(suite))));
    let suite = admission::add(suite);
    let suite = cluster_failovers::add(slot_moves::add(cluster_outages::add(suite)));
    let suite = sentinel_failovers::add(suite);
    redlock_guards::add(redlock_nodes::add(suite))
        .test(cluster_steps::step_in_a_cluster_returns_its_true_outcome)
        .and(proxied)
        .and(clocks::tests())
        .and(carried_reads::add(sections::tests()))
}
