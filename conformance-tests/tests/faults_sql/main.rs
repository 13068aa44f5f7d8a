//! What happens to a database server, to its sessions and to its clock, while clients hold and wait:
//! the suite's cases know faults that every store can meet, these are the ones of databases.

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod clock;
#[cfg(unix)]
mod guarded;
#[cfg(unix)]
mod leases;
#[cfg(unix)]
mod limits;
#[cfg(unix)]
mod pooler;
#[cfg(unix)]
mod pools;
#[cfg(unix)]
mod quiet;
#[cfg(unix)]
mod rows;
#[cfg(all(unix, feature = "secure"))]
mod secure;
#[cfg(unix)]
mod server;
#[cfg(unix)]
mod sessions;
#[cfg(all(unix, feature = "mutants"))]
mod steps;
#[cfg(unix)]
mod tables;
#[cfg(unix)]
mod world;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::servers::guardian;
    use world::{Maria, Postgres};

    if let Some(code) = guardian::serve() {
        return code;
    }
    let poolers = Ground::new("poolers-of-postgres", pooler::missing())
        .trial(pooler::only_sessions_of_the_server_itself_keep_statements);
    let ground = trials::<Postgres>("faults-of-postgres", "clock-of-postgres")
        .trial(sessions::a_release_that_ends_with_its_pin_is_none)
        .trial(sessions::wake_ups_come_back_after_a_silent_cut)
        .trial(limits::looks_for_the_primary_once_a_second)
        .trial(tables::roles_that_share_a_database_share_a_table)
        .trial(tables::a_long_name_of_a_table_has_wake_ups)
        .and(poolers);
    #[cfg(feature = "secure")]
    let ground = ground
        .and(secure::trials::<secure::SecurePostgres>("tls-of-postgres"))
        .and(secure::trials::<secure::SecureMaria>("tls-of-mariadb"));
    let maria = trials::<Maria>("faults-of-mariadb", "clock-of-mariadb")
        .trial(sessions::a_server_without_autocommit_keeps_no_row_locked)
        .trial(sessions::a_pin_lives_behind_a_proxy_that_answers_pings)
        .trial(sessions::breaking_a_pin_ends_no_strangers_session)
        .trial(pools::a_changed_password_is_used)
        .trial(tables::a_server_that_is_not_mysql_is_refused);
    ground.and(maria).run(4)
}

/// What every database server is put through.
#[cfg(unix)]
fn trials<D: world::Database>(
    name: &'static str,
    clock: &'static str,
) -> conformance_tests::Ground {
    let on_a_clock = clock::missing().or_else(D::missing);
    let clocks = conformance_tests::Ground::new(clock, on_a_clock)
        .trial(clock::tokens_grow_when_the_clock_goes_back::<D>)
        .trial(clock::a_clock_that_jumps_ahead_fences_the_holder::<D>);
    let ground = conformance_tests::Ground::new(name, D::missing());
    #[cfg(feature = "mutants")]
    let ground = ground.trial(steps::a_step_tells_the_truth_whichever_request_fails::<D>);
    ground
        .trial(sessions::killed_sessions_lose_neither_leases_nor_waiters::<D>)
        .trial(sessions::a_killed_pin_is_a_loss_at_once::<D>)
        .trial(sessions::the_lock_of_a_killed_process_is_free_at_once::<D>)
        .trial(sessions::idle_killers_cost_no_hold::<D>)
        .trial(sessions::nothing_is_left_but_rows::<D>)
        .trial(server::a_killed_server_keeps_leases_and_ends_pins::<D>)
        .trial(server::a_short_freeze_costs_no_hold::<D>)
        .trial(server::a_long_freeze_ends_the_hold_before_another_begins::<D>)
        .trial(leases::no_request_makes_a_lease_shorter::<D>)
        .trial(leases::an_extended_lease_lasts_as_long_as_was_said::<D>)
        .trial(limits::a_locked_row_delays_no_other::<D>)
        .trial(limits::a_release_waits_for_no_locked_row::<D>)
        .trial(limits::short_time_limits_of_the_server_cost_no_hold::<D>)
        .trial(limits::leaves_a_server_that_takes_no_writes::<D>)
        .trial(pools::locks_need_no_connection_of_the_pool::<D>)
        .trial(pools::a_refused_table_leaves_the_pool_as_it_was::<D>)
        .trial(tables::a_missing_database_is_named::<D>)
        .trial(quiet::contention_is_no_error_of_the_server::<D>)
        .trial(quiet::strict_isolation_is_borne::<D>)
        .trial(quiet::documented_rights_are_enough::<D>)
        .trial(rows::purge_deletes_what_nobody_used_for_long::<D>)
        .trial(guarded::a_stale_holder_commits_nothing::<D>)
        .trial(guarded::a_hold_that_was_given_back_commits_nothing::<D>)
        .trial(guarded::nobody_takes_over_before_the_commit::<D>)
        .trial(guarded::a_lock_of_a_transaction_ends_with_it::<D>)
        .trial(guarded::a_lock_of_a_transaction_fences_whom_it_passes_over::<D>)
        .trial(guarded::a_try_outlasts_a_moment::<D>)
        .and(clocks)
}
