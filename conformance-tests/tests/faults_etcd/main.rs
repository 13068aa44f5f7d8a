//! What happens to etcd servers, and to the way there, while clients hold and wait: the suite's cases
//! know faults that every store can meet, these are the ones of etcd.

mod access;
mod crowds;
mod fenced;
mod keys;
mod members;
mod messages;
mod network;
mod order;
#[cfg(feature = "mutants")]
mod requests;
#[cfg(feature = "secure")]
mod secure;
mod world;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::missing;
use conformance_tests::servers::EtcdCluster;

fn main() -> ExitCode {
    TestSuite::main(3, tests)
}

fn tests() -> TestSuite {
    let suite = TestSuite::new("faults-of-etcd", missing(EtcdCluster::PROGRAM))
        .test(keys::a_revoked_lease_is_reported_soon)
        .test(keys::a_revoked_lease_grants_nothing_to_its_waiter)
        .test(keys::a_lease_takes_the_hold_and_the_waiter_of_one_client)
        .test(keys::a_deleted_key_is_reported_soon)
        .test(keys::a_waiter_with_a_deleted_key_queues_again)
        .test(keys::a_deleted_key_of_a_waiter_is_never_restored)
        .test(keys::a_compaction_during_a_wait_is_not_noticed)
        .test(keys::a_key_of_a_late_request_is_deleted)
        .test(keys::nothing_is_left_in_the_end)
        .test(keys::an_old_session_counts_from_its_last_keep_alive)
        .test(fenced::work_is_done_while_the_hold_stands)
        .test(fenced::work_of_a_silent_holder_is_refused)
        .test(fenced::work_of_a_paused_holder_is_refused)
        .test(order::nine_waiters_in_nine_processes_are_served_in_order)
        .test(order::many_waiters_are_served_at_once_and_in_order)
        .test(order::a_full_server_ends_holds_before_a_crowd)
        .test(network::a_grant_whose_reply_is_dropped_is_one_hold)
        .test(network::a_key_is_used_again_when_it_is_gone_for_certain)
        .test(network::acquires_that_are_dropped_leave_nothing_behind_cut_connections)
        .test(members::a_dead_endpoint_fails_no_call)
        .test(members::a_killed_leader_keeps_the_order_of_waiters)
        .test(members::a_frozen_member_is_avoided)
        .test(members::a_frozen_leader_that_comes_back_grants_nothing_twice)
        .test(access::a_user_needs_its_prefix_and_no_more)
        .test(access::a_token_that_has_ended_is_made_anew)
        .test(access::a_user_of_one_lock_needs_no_more_than_its_keys)
        .test(network::streams_that_end_at_once_are_reopened_ever_more_slowly)
        .test(messages::an_error_of_a_connection_names_the_server)
        .test(crowds::two_thousand_waiters_cost_the_server_little);
    #[cfg(feature = "mutants")]
    let suite = suite
        .test(requests::no_failure_within_a_step_keeps_others_out)
        .test(requests::a_release_that_was_carried_out_is_no_loss)
        .test(requests::slow_deletions_of_late_keys_delay_no_keep_alive)
        .test(requests::an_extension_beyond_the_session_keeps_others_out)
        .test(requests::a_renewal_says_the_lease_of_its_own_session);
    #[cfg(feature = "secure")]
    let suite = suite
        .test(secure::tls_needs_a_server_that_is_trusted)
        .test(secure::a_server_may_ask_for_the_client_s_certificate);
    suite
}
