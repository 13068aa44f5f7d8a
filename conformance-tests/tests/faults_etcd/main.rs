//! Faults of etcd servers and of connections to them, while clients hold and wait. The cases of the suite
//! have the faults that every store can meet.

mod access;
mod fenced;
mod keys;
mod listing;
mod members;
mod messages;
mod network;
mod order;
mod outcomes;
#[cfg(feature = "mutants")]
mod requests;
mod sections;
#[cfg(feature = "secure")]
mod secure;
mod sessions;
mod shared;
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
        .test(keys::revoked_lease_is_reported_soon)
        .test(keys::revoked_lease_grants_nothing)
        .test(keys::lease_end_takes_hold_and_waiter_together)
        .test(keys::deleted_key_is_reported_soon)
        .test(keys::waiter_with_deleted_key_queues_again)
        .test(keys::deleted_key_of_waiter_is_never_restored)
        .test(keys::compaction_does_not_disturb_waiter)
        .test(keys::key_of_late_request_is_deleted)
        .test(keys::leaves_nothing_behind)
        .test(keys::lease_counts_from_last_keep_alive)
        .test(sessions::extension_beyond_session_keeps_others_out)
        .test(sessions::renewal_returns_lease_of_its_session)
        .test(sessions::server_keeps_a_lease_for_as_long_as_is_believed)
        .test(sessions::renewal_tells_of_the_end_of_its_session)
        .test(sessions::sessions_that_are_over_are_forgotten)
        .test(sessions::hold_ends_with_the_runtime_of_its_client)
        .test(fenced::guarded_work_is_done_during_hold)
        .test(fenced::guarded_work_of_silent_holder_is_refused)
        .test(fenced::guarded_work_of_paused_holder_is_refused)
        .test(fenced::guarded_work_outlives_runtimes_of_callers)
        .test(shared::dead_reader_ends_alone)
        .test(shared::dead_writer_lets_readers_in)
        .test(shared::lease_end_takes_holder_and_waiting_writer_together)
        .test(shared::note_is_the_value_of_the_key)
        .test(order::serves_nine_processes_in_order)
        .test(order::serves_long_queue_in_order_at_once)
        .test(order::full_server_still_releases)
        .test(order::long_queue_of_a_long_name_is_read_in_parts)
        .test(network::lost_reply_makes_one_hold)
        .test(network::reuses_key_once_it_is_gone)
        .test(network::dropped_acquire_leaves_nothing_on_cut_connection)
        .test(members::dead_endpoint_fails_no_call)
        .test(members::killed_leader_keeps_order)
        .test(members::avoids_frozen_member)
        .test(members::returning_leader_grants_nothing_twice)
        .test(access::user_needs_only_its_prefix)
        .test(access::renews_expired_token)
        .test(access::waiter_is_woken_after_the_token_has_expired)
        .test(access::user_of_one_lock_needs_only_its_keys)
        .test(network::reopens_broken_streams_with_backoff)
        .test(messages::connection_error_names_server)
        .test(listing::many_leases_are_read_at_once);
    let suite = outcomes::add(sections::add(suite));
    #[cfg(feature = "mutants")]
    let suite = suite
        .test(requests::failed_request_does_not_block_others)
        .test(requests::break_that_fails_in_part_is_indeterminate)
        .test(requests::executed_release_is_no_loss)
        .test(requests::late_deletion_of_a_try_ends_no_later_hold)
        .test(requests::slow_deletion_delays_no_keep_alive);
    #[cfg(feature = "secure")]
    let suite = suite
        .test(secure::tls_needs_trusted_server)
        .test(secure::client_certificate_is_sent)
        .test(secure::waits_while_a_certificate_is_replaced);
    suite
}
