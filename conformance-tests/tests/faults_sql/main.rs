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
mod limits;
#[cfg(unix)]
mod pooler;
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
#[cfg(unix)]
mod world;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::servers::guardian;
    use world::{Database, Maria, Postgres};

    if let Some(code) = guardian::serve() {
        return code;
    }
    fn trials<D: Database>(name: &'static str, clock: &'static str) -> Ground {
        let on_a_clock = clock::missing().or_else(D::missing);
        let clocks = Ground::new(clock, on_a_clock)
            .trial(clock::tokens_grow_when_the_clock_goes_back::<D>)
            .trial(clock::a_clock_that_jumps_ahead_fences_the_holder::<D>);
        Ground::new(name, D::missing())
            .trial(sessions::killed_sessions_lose_neither_leases_nor_waiters::<D>)
            .trial(sessions::a_killed_pin_is_a_loss_at_once::<D>)
            .trial(sessions::the_lock_of_a_killed_process_is_free_at_once::<D>)
            .trial(sessions::idle_killers_cost_no_hold::<D>)
            .trial(sessions::nothing_is_left_but_rows::<D>)
            .trial(server::a_killed_server_keeps_leases_and_ends_pins::<D>)
            .trial(server::a_short_freeze_costs_no_hold::<D>)
            .trial(server::a_long_freeze_ends_the_hold_before_another_begins::<D>)
            .trial(limits::an_exhausted_pool_is_told_and_heals::<D>)
            .trial(limits::a_locked_row_delays_no_other::<D>)
            .trial(limits::a_release_waits_for_no_locked_row::<D>)
            .trial(limits::short_time_limits_of_the_server_cost_no_hold::<D>)
            .trial(limits::a_read_only_server_is_told_and_heals::<D>)
            .trial(quiet::contention_is_no_error_of_the_server::<D>)
            .trial(quiet::strict_isolation_is_borne::<D>)
            .trial(quiet::sessions_of_the_application_keep_their_settings::<D>)
            .trial(quiet::documented_rights_are_enough::<D>)
            .trial(rows::purge_deletes_what_nobody_used_for_long::<D>)
            .trial(guarded::a_stale_holder_commits_nothing::<D>)
            .trial(guarded::a_hold_that_was_given_back_commits_nothing::<D>)
            .trial(guarded::nobody_takes_over_before_the_commit::<D>)
            .trial(guarded::a_lock_of_a_transaction_ends_with_it::<D>)
            .trial(guarded::a_try_outlasts_a_moment::<D>)
            .and(clocks)
    }
    let poolers = Ground::new("poolers-of-postgres", pooler::missing())
        .trial(pooler::only_sessions_of_the_server_itself_keep_statements);
    let ground = trials::<Postgres>("faults-of-postgres", "clock-of-postgres")
        .trial(sessions::a_release_that_ends_with_its_pin_is_none)
        .and(poolers);
    #[cfg(feature = "secure")]
    let ground = ground
        .and(secure::trials::<secure::SecurePostgres>("tls-of-postgres"))
        .and(secure::trials::<secure::SecureMaria>("tls-of-mariadb"));
    let maria = trials::<Maria>("faults-of-mariadb", "clock-of-mariadb")
        .trial(limits::a_calm_lock_waits_a_moment_for_its_row);
    ground.and(maria).run(4)
}
