//! What happens to ZooKeeper servers, to their nodes and to the way there, while clients hold and
//! wait: the suite's cases know faults that every store can meet, these are the ones of ZooKeeper.

mod access;
mod aged;
mod ensemble;
mod fenced;
mod listing;
mod network;
mod nodes;
mod order;
mod sections;
#[cfg(feature = "secure")]
mod secure;
mod shared;
mod steps;
mod wire;
mod world;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::servers::ZkServer;

fn main() -> ExitCode {
    TestSuite::main(4, tests)
}

fn tests() -> TestSuite {
    let suite = TestSuite::new("faults-of-zk", ZkServer::missing())
        .test(nodes::ended_session_is_reported_to_holder_and_waiter)
        .test(nodes::deleted_node_is_a_loss_at_once)
        .test(nodes::deleted_node_of_a_waiter_is_no_grant)
        .test(nodes::deleted_parent_is_created_again)
        .test(nodes::client_alone_ends_a_fixed_lease)
        .test(nodes::two_hundred_dropped_acquires_leave_nothing)
        .test(network::create_without_a_reply_is_one_node)
        .test(network::release_without_a_reply_is_a_release)
        .test(network::window_counts_from_the_last_ping)
        .test(network::grant_after_a_long_wait_is_young)
        .test(network::waiters_keep_their_places_over_lost_connections)
        .test(network::many_watches_outlive_a_connection)
        .test(nodes::hold_ends_with_the_runtime_of_its_client)
        .test(network::two_hundred_dropped_acquires_on_a_bad_link)
        .test(steps::step_returns_its_true_outcome_whichever_request_fails)
        .test(steps::user_who_may_not_list_leaves_no_node)
        .test(steps::late_create_leaves_no_node)
        .test(shared::dead_reader_ends_alone)
        .test(shared::dead_writer_lets_readers_in)
        .test(shared::note_is_the_data_of_the_node)
        .test(order::nine_waiters_in_nine_processes_are_served_in_order)
        .test(order::order_of_creation_counts_after_the_last_number)
        .test(order::empty_queue_is_deleted_and_tokens_still_grow)
        .test(aged::waiters_are_served_in_order_after_the_last_number)
        .test(fenced::only_a_holder_writes)
        .test(fenced::holder_cut_off_past_its_ttl_writes_nothing)
        .test(fenced::holder_paused_past_its_ttl_writes_nothing)
        .test(fenced::guarded_writes_outlive_runtimes_of_callers)
        .test(access::user_shares_locks_with_itself_alone)
        .test(access::chroot_is_created_and_kept)
        .test(access::session_that_is_not_granted_is_an_error)
        .test(access::lease_set_in_code_reaches_the_session)
        .test(access::unreachable_ensemble_is_named_with_the_reason)
        .test(access::lost_ensemble_is_named)
        .test(ensemble::killed_leader_makes_no_second_holder)
        .test(ensemble::client_leaves_a_frozen_member)
        .test(ensemble::cut_off_follower_keeps_no_hold_alive)
        .test(listing::many_locks_are_read_at_once)
        .test(listing::list_shows_locks_of_other_users_too)
        .test(access::token_base_has_a_limit)
        .test(nodes::changed_node_of_a_waiter_is_no_grant_before_it_is_watched);
    let suite = sections::add(suite);
    #[cfg(feature = "secure")]
    let suite = suite
        .test(secure::tls_needs_a_trusted_certificate)
        .test(secure::sasl_users_own_their_nodes);
    suite
}
