//! What happens to etcd servers, and to the way there, while clients hold and wait: the suite's cases
//! know faults that every store can meet, these are the ones of etcd.

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod access;
#[cfg(unix)]
mod crowds;
#[cfg(unix)]
mod fenced;
#[cfg(unix)]
mod keys;
#[cfg(unix)]
mod members;
#[cfg(unix)]
mod messages;
#[cfg(unix)]
mod network;
#[cfg(unix)]
mod order;
#[cfg(all(unix, feature = "mutants"))]
mod requests;
#[cfg(all(unix, feature = "secure"))]
mod secure;
#[cfg(unix)]
mod world;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::foreign::missing;
    use conformance_tests::servers::{EtcdCluster, guardian};

    if let Some(code) = guardian::serve() {
        return code;
    }
    let ground = conformance_tests::Ground::new("faults-of-etcd", missing(EtcdCluster::PROGRAM))
        .trial(keys::a_revoked_lease_is_told_soon)
        .trial(keys::a_revoked_lease_grants_nothing_to_its_waiter)
        .trial(keys::a_lease_takes_the_hold_and_the_waiter_of_one_client)
        .trial(keys::a_deleted_key_is_told_soon)
        .trial(keys::a_deleted_place_is_taken_again)
        .trial(keys::a_place_that_is_gone_is_never_put_again)
        .trial(keys::a_compaction_during_a_wait_is_not_noticed)
        .trial(keys::a_key_of_a_late_request_is_deleted)
        .trial(keys::nothing_is_left_in_the_end)
        .trial(keys::an_old_session_counts_from_its_last_beat)
        .trial(fenced::work_is_done_while_the_hold_stands)
        .trial(fenced::work_of_a_silent_holder_is_refused)
        .trial(fenced::work_of_a_paused_holder_is_refused)
        .trial(order::nine_waiters_in_nine_processes_are_served_in_order)
        .trial(order::behind_a_crowd_each_is_served_at_once_and_in_order)
        .trial(order::a_full_server_ends_holds_before_a_crowd)
        .trial(network::a_grant_whose_reply_is_dropped_is_one_hold)
        .trial(network::a_key_is_used_again_when_it_is_gone_for_certain)
        .trial(network::acquires_that_are_dropped_leave_nothing_behind_cut_connections)
        .trial(members::a_dead_endpoint_fails_no_call)
        .trial(members::a_killed_leader_costs_nobody_the_order)
        .trial(members::a_frozen_member_is_passed_over)
        .trial(members::a_frozen_leader_that_comes_back_grants_nothing_twice)
        .trial(access::a_user_needs_its_prefix_and_no_more)
        .trial(access::a_token_that_has_ended_is_made_anew)
        .trial(access::a_user_of_one_lock_needs_no_more_than_its_keys)
        .trial(network::streams_that_end_at_once_are_reopened_ever_more_slowly)
        .trial(messages::an_error_of_a_connection_names_the_server)
        .trial(crowds::two_thousand_waiters_cost_the_server_little);
    #[cfg(feature = "mutants")]
    let ground = ground
        .trial(requests::no_failure_within_a_step_keeps_others_out)
        .trial(requests::a_release_that_was_carried_out_is_no_loss)
        .trial(requests::slow_deletions_of_late_keys_delay_no_keep_alive)
        .trial(requests::an_extension_beyond_the_session_keeps_others_out)
        .trial(requests::a_renewal_says_the_lease_of_its_own_session);
    #[cfg(feature = "secure")]
    let ground = ground
        .trial(secure::tls_needs_a_server_that_is_trusted)
        .trial(secure::a_server_may_ask_for_the_client_s_certificate);
    ground.run(3)
}
