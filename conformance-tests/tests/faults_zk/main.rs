//! What happens to ZooKeeper servers, to their nodes and to the way there, while clients hold and
//! wait: the suite's cases know faults that every store can meet, these are the ones of ZooKeeper.

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod access;
#[cfg(unix)]
mod aged;
#[cfg(unix)]
mod ensemble;
#[cfg(unix)]
mod fenced;
#[cfg(unix)]
mod network;
#[cfg(unix)]
mod nodes;
#[cfg(unix)]
mod order;
#[cfg(all(unix, feature = "secure"))]
mod secure;
#[cfg(unix)]
mod steps;
#[cfg(unix)]
mod wire;
#[cfg(unix)]
mod world;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::servers::{ZkServer, guardian};

    if let Some(code) = guardian::serve() {
        return code;
    }
    let ground = conformance_tests::Ground::new("faults-of-zk", ZkServer::missing())
        .trial(nodes::an_ended_session_is_told_to_holder_and_waiter)
        .trial(nodes::a_deleted_node_is_a_loss_at_once)
        .trial(nodes::a_deleted_place_is_no_grant)
        .trial(nodes::a_deleted_parent_is_made_again)
        .trial(nodes::a_fixed_lease_ends_by_the_client_alone)
        .trial(nodes::two_hundred_dropped_acquires_leave_nothing)
        .trial(network::a_create_whose_reply_is_lost_is_one_node)
        .trial(network::a_release_whose_reply_is_lost_is_a_release)
        .trial(network::the_age_of_the_session_counts)
        .trial(network::waiters_keep_their_places_over_lost_connections)
        .trial(network::two_hundred_dropped_acquires_on_a_bad_line)
        .trial(steps::a_step_of_which_a_request_fails_says_what_became_of_it)
        .trial(steps::a_user_who_may_not_list_leaves_no_node)
        .trial(steps::a_create_that_comes_late_leaves_no_node)
        .trial(order::nine_waiters_in_nine_processes_are_served_in_order)
        .trial(order::past_the_last_number_the_order_is_that_of_creation)
        .trial(order::an_empty_queue_goes_and_tokens_still_grow)
        .trial(aged::past_the_last_number_who_came_first_is_served_first)
        .trial(fenced::only_a_holder_writes)
        .trial(fenced::a_holder_whose_line_was_silent_past_its_ttl_writes_nothing)
        .trial(fenced::a_holder_that_was_paused_past_its_ttl_writes_nothing)
        .trial(access::a_user_shares_locks_with_itself_alone)
        .trial(access::the_chroot_is_made_and_kept)
        .trial(access::a_session_that_is_not_granted_is_an_error)
        .trial(access::a_lease_set_in_code_reaches_the_session)
        .trial(access::an_ensemble_that_is_not_there_is_named_with_the_reason)
        .trial(ensemble::a_killed_leader_makes_no_second_holder)
        .trial(ensemble::a_frozen_member_is_left)
        .trial(ensemble::a_follower_that_is_cut_off_keeps_no_hold_alive);
    #[cfg(feature = "secure")]
    let ground = ground
        .trial(secure::tls_needs_a_certificate_that_is_trusted)
        .trial(secure::sasl_users_own_their_nodes);
    #[cfg(feature = "mutants")]
    let ground = ground
        .trial(network::a_lease_that_counts_from_its_grant_is_caught)
        .trial(ensemble::reads_of_a_follower_as_heartbeats_are_caught);
    ground.run(4)
}
