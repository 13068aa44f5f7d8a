//! The real Redisson and this library, on the same names of the same server.

mod cluster;
mod exclusion;
mod kinds;
mod operators;
mod redlock;
mod sentinel;
mod tokens;
mod waking;
mod world;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::{Redisson, missing};
use conformance_tests::servers::RedisServer;

fn main() -> ExitCode {
    // A virtual machine each: more at once only makes all of them slow.
    TestSuite::main(2, tests)
}

fn tests() -> TestSuite {
    TestSuite::new(
        "redisson",
        missing(RedisServer::PROGRAM).or_else(Redisson::missing),
    )
    .test(exclusion::our_hold_excludes_redisson)
    .test(exclusion::redissons_hold_excludes_us)
    .test(exclusion::redissons_watchdog_keeps_us_out)
    .test(exclusion::our_renewals_keep_redisson_out)
    .test(exclusion::reentrant_hold_of_redisson_lasts_until_its_last_unlock)
    .test(exclusion::sections_of_both_never_overlap)
    .test(waking::redissons_unlock_wakes_our_waiter)
    .test(waking::our_release_wakes_redissons_waiter)
    .test(waking::killed_redisson_frees_its_lock_for_our_waiter)
    .test(waking::our_crash_frees_the_lock_for_redissons_waiter)
    .test(tokens::tokens_grow_across_both)
    .test(tokens::names_with_braces_share_lock_token_and_channel)
    .test(operators::redissons_hold_is_listed_and_inspected)
    .test(operators::our_break_ends_redissons_hold_and_wakes_its_waiter)
    .test(operators::redissons_force_unlock_is_a_loss_to_our_holder)
    .test(kinds::read_write_lock_counts_as_held_and_is_not_changed)
    .test(kinds::our_shared_holds_exclude_all_kinds_of_redisson)
    .test(kinds::all_kinds_of_redisson_exclude_our_shared_holds)
    .test(cluster::both_exclude_each_other_and_are_served)
    .test(sentinel::both_exclude_each_other_and_are_served_over_a_failover)
    .test(redlock::both_exclude_each_other_on_a_majority)
}
