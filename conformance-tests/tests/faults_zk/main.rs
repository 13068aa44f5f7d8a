//! What happens to ZooKeeper servers, to their nodes and to the way there, while clients hold and
//! wait: the suite's cases know faults that every store can meet, these are the ones of ZooKeeper.

mod access;
mod aged;
mod ensemble;
mod fenced;
mod network;
mod nodes;
mod order;
#[cfg(feature = "secure")]
mod secure;
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
        .test(nodes::an_ended_session_is_reported_to_holder_and_waiter)
        .test(nodes::a_deleted_node_is_a_loss_at_once)
        .test(nodes::a_deleted_place_is_no_grant)
        .test(nodes::a_deleted_parent_is_made_again)
        .test(nodes::a_fixed_lease_ends_by_the_client_alone)
        .test(nodes::two_hundred_dropped_acquires_leave_nothing)
        .test(network::a_create_whose_reply_is_lost_is_one_node)
        .test(network::a_release_whose_reply_is_lost_is_a_release)
        .test(network::the_window_counts_from_the_last_ping)
        .test(network::waiters_keep_their_places_over_lost_connections)
        .test(network::two_hundred_dropped_acquires_on_a_bad_link)
        .test(steps::a_step_of_which_a_request_fails_says_what_became_of_it)
        .test(steps::a_user_who_may_not_list_leaves_no_node)
        .test(steps::a_create_that_comes_late_leaves_no_node)
        .test(order::nine_waiters_in_nine_processes_are_served_in_order)
        .test(order::past_the_last_number_the_order_is_that_of_creation)
        .test(order::an_empty_queue_goes_and_tokens_still_grow)
        .test(aged::past_the_last_number_waiters_are_served_in_order)
        .test(fenced::only_a_holder_writes)
        .test(fenced::a_holder_cut_off_past_its_ttl_writes_nothing)
        .test(fenced::a_holder_that_was_paused_past_its_ttl_writes_nothing)
        .test(access::a_user_shares_locks_with_itself_alone)
        .test(access::the_chroot_is_made_and_kept)
        .test(access::a_session_that_is_not_granted_is_an_error)
        .test(access::a_lease_set_in_code_reaches_the_session)
        .test(access::an_ensemble_that_is_not_there_is_named_with_the_reason)
        .test(ensemble::a_killed_leader_makes_no_second_holder)
        .test(ensemble::a_frozen_member_is_left)
        .test(ensemble::a_follower_that_is_cut_off_keeps_no_hold_alive);
    #[cfg(feature = "secure")]
    let suite = suite
        .test(secure::tls_needs_a_certificate_that_is_trusted)
        .test(secure::sasl_users_own_their_nodes);
    suite
}
