//! The real command as real processes, on a real Redis server: `redis-server` and `redis-cli`.
//!
//! Where there is no server the tests are listed as ignored; `LOCKKIT_REQUIRE=all` makes its absence a
//! failure.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking, in what they share too; the figures are for people"
)]

mod hand_off;
mod outage;
mod server;
#[path = "../command/stage.rs"]
#[expect(dead_code, reason = "the tests on the embedded store need more of it")]
mod stage;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

const TESTS: [(&str, fn()); 14] = [
    (
        "kill_9_of_the_holder_frees_the_lock_within_its_lease",
        hand_off::kill_9_of_the_holder_frees_the_lock_within_its_lease,
    ),
    (
        "the_token_grows_over_everything",
        hand_off::the_token_grows_over_everything,
    ),
    ("no_two_run_at_once", hand_off::no_two_run_at_once),
    (
        "shared_runs_share_and_exclude_others",
        hand_off::shared_runs_share_and_exclude_others,
    ),
    (
        "job_that_waited_runs_on_while_its_first_lease_is_short",
        hand_off::job_that_waited_runs_on_while_its_first_lease_is_short,
    ),
    (
        "permits_limit_how_many_run",
        hand_off::permits_limit_how_many_run,
    ),
    (
        "a_server_that_is_away_at_the_start_is_waited_for",
        outage::a_server_that_is_away_at_the_start_is_waited_for,
    ),
    (
        "a_server_that_stays_away_is_69_when_the_wait_ends",
        outage::a_server_that_stays_away_is_69_when_the_wait_ends,
    ),
    (
        "a_wait_that_ends_while_the_server_is_dead_is_69_in_one_line",
        outage::a_wait_that_ends_while_the_server_is_dead_is_69_in_one_line,
    ),
    (
        "a_wait_that_ends_while_the_server_is_frozen_names_it",
        outage::a_wait_that_ends_while_the_server_is_frozen_names_it,
    ),
    (
        "a_lease_that_is_not_renewed_ends_with_the_reason",
        outage::a_lease_that_is_not_renewed_ends_with_the_reason,
    ),
    (
        "a_renewal_just_before_the_end_keeps_the_program",
        outage::a_renewal_just_before_the_end_keeps_the_program,
    ),
    (
        "a_release_without_an_answer_is_told_once",
        outage::a_release_without_an_answer_is_told_once,
    ),
    (
        "a_job_that_ends_sooner_leaves_its_lock_to_a_lease",
        hand_off::a_job_that_ends_sooner_leaves_its_lock_to_a_lease,
    ),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = server::missing();
    let required = std::env::var("LOCKKIT_REQUIRE").is_ok_and(|names| names.contains("all"));
    let trial = |name: &str, body: fn()| {
        let trial = Trial::test(name, move || {
            body();
            Ok(())
        });
        match &missing {
            Some(reason) if !required => trial
                .with_ignored_flag(true)
                .with_kind(format!("skip: {reason}")),
            _ => trial,
        }
    };
    let trials = TESTS.map(|(name, body)| trial(name, body));
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
