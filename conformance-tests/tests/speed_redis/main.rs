//! How fast the store in Redis is, against the least that the server itself needs for the same.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_redis` shows
//! what a program sees; without optimisation our side of a ratio costs several times as much, so the
//! bounds of processor time are wider there.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod bare;
#[cfg(unix)]
mod crowd;
#[cfg(unix)]
mod holds;
#[cfg(unix)]
mod peers;
#[cfg(unix)]
mod solo;
#[cfg(unix)]
mod waiting;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::foreign::missing;
    use conformance_tests::servers::RedisServer;

    let missing = || missing(RedisServer::PROGRAM);
    // One after the other: each wants the machine.
    Ground::main("speed-of-redis", missing, 1, |ground| {
        ground
            .trial(solo::a_cycle_is_two_round_trips)
            .trial(solo::a_cycle_costs_little_more_than_its_scripts)
            .trial(crowd::eight_through_the_proxy_hand_over_in_one_trip)
            .trial(crowd::eight_and_sixty_four_keep_up_with_a_bare_list)
            .trial(peers::eight_hand_over_faster_than_with_rslock)
            .trial(crowd::tasks_of_one_client_far_away_hand_over_as_clients_do)
            .trial(crowd::tasks_of_one_client_hand_over_as_clients_do)
            .trial(crowd::many_locks_of_one_client_share_its_connection)
            .trial(holds::twenty_thousand_holds_are_kept_with_little_work)
            .trial(waiting::two_thousand_waiters_cost_the_server_little)
    })
}
