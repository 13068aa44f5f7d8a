//! The real Redisson and this library, on the same names of the same server.

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod exclusion;
#[cfg(unix)]
mod kinds;
#[cfg(unix)]
mod operators;
#[cfg(unix)]
mod tokens;
#[cfg(unix)]
mod waking;
#[cfg(unix)]
mod world;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::foreign::{Redisson, missing};
    use conformance_tests::servers::RedisServer;

    let missing = || missing(RedisServer::PROGRAM).or_else(Redisson::missing);
    // A virtual machine each: more at once only makes all of them slow.
    Ground::main("redisson", missing, 2, |ground| {
        ground
            .trial(exclusion::our_hold_excludes_redisson)
            .trial(exclusion::redissons_hold_excludes_us)
            .trial(exclusion::redissons_watchdog_keeps_us_out)
            .trial(exclusion::our_renewals_keep_redisson_out)
            .trial(exclusion::a_reentrant_hold_of_redisson_stands_until_its_last_unlock)
            .trial(exclusion::sections_of_both_never_overlap)
            .trial(waking::redissons_unlock_wakes_our_waiter)
            .trial(waking::our_release_wakes_redissons_waiter)
            .trial(waking::a_killed_redisson_frees_its_lock_for_our_waiter)
            .trial(waking::our_crash_frees_the_lock_for_redissons_waiter)
            .trial(tokens::tokens_grow_across_both)
            .trial(tokens::names_with_braces_share_lock_token_and_channel)
            .trial(operators::redissons_hold_is_listed_and_inspected)
            .trial(operators::our_break_ends_redissons_hold_and_wakes_its_waiter)
            .trial(operators::redissons_force_unlock_is_a_loss_to_our_holder)
            .trial(kinds::a_read_write_lock_counts_as_held_and_stays_as_it_is)
    })
}
