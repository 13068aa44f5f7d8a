//! What happens to a database server, to its sessions and to its clock, while clients hold and wait:
//! the suite's cases know faults that every store can meet, these are the ones of databases.

mod addresses;
mod clock;
mod guarded;
mod leases;
mod limits;
mod opening;
mod pooler;
mod pools;
mod quiet;
mod release_in;
mod rows;
mod section;
#[cfg(feature = "secure")]
mod secure;
mod server;
mod sessions;
mod shared;
#[cfg(feature = "mutants")]
mod steps;
mod tables;
mod turns;
mod world;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::servers::ServerClock;
use world::{Maria, Postgres};

fn main() -> ExitCode {
    TestSuite::main(4, tests)
}

fn tests() -> TestSuite {
    let poolers = TestSuite::new("poolers-of-postgres", pooler::missing())
        .test(pooler::polling_or_unprepared_stores_prepare_nothing)
        .test(pooler::store_works_whose_statements_are_forgotten)
        .test(pooler::session_behind_a_pooler_needs_session_mode);
    let suite = of_a_database::<Postgres>("faults-of-postgres", "clock-of-postgres")
        .test(sessions::wake_ups_come_back_after_a_silent_cut)
        .test(sessions::cut_off_pin_is_lost_before_another_is_granted)
        .test(limits::looks_for_the_primary_once_a_second)
        .test(shared::renewal_of_a_reader_gives_a_locked_row_up::<Postgres>)
        .test(release_in::commit_grants_to_the_first_and_is_durable)
        .test(guarded::waiter_that_holds_asks_again_while_its_row_is_locked)
        .test(opening::table_locked_by_a_migration_of_postgres_ends_the_opening)
        .test(tables::roles_that_share_a_database_share_a_table)
        .test(tables::table_with_a_long_name_has_wake_ups)
        .and(poolers);
    #[cfg(feature = "mutants")]
    let suite = suite.and(
        TestSuite::new("faults-of-sqlite", None)
            .test(steps::step_in_a_file_returns_its_true_outcome),
    );
    #[cfg(feature = "secure")]
    let suite = suite
        .and(secure::trials::<secure::SecurePostgres>("tls-of-postgres"))
        .and(secure::trials::<secure::SecureMaria>("tls-of-mariadb"));
    let maria = of_a_database::<Maria>("faults-of-mariadb", "clock-of-mariadb")
        .test(sessions::server_without_autocommit_keeps_no_row_locked)
        .test(opening::table_locked_by_a_migration_of_mariadb_ends_the_opening)
        .test(sessions::pin_lasts_behind_a_proxy_that_answers_pings)
        .test(pools::changed_password_is_used)
        .test(turns::place_that_is_taken_during_a_turn_counts)
        .test(tables::server_other_than_mysql_is_refused);
    suite.and(maria)
}

/// What every database server is put through.
fn of_a_database<D: world::Database>(name: &'static str, clock: &'static str) -> TestSuite {
    let on_a_clock = ServerClock::missing().or_else(D::missing);
    let clocks = TestSuite::new(clock, on_a_clock)
        .test(clock::tokens_grow_when_the_clock_goes_back::<D>)
        .test(clock::clock_that_jumps_ahead_fences_the_holder::<D>);
    let suite = TestSuite::new(name, D::missing());
    #[cfg(feature = "mutants")]
    let suite = suite.test(steps::step_returns_its_true_outcome_whichever_request_fails::<D>);
    let suite = suite
        .test(sessions::killed_sessions_lose_neither_leases_nor_waiters::<D>)
        .test(sessions::killed_pin_is_a_loss_at_once::<D>)
        .test(sessions::no_check_passes_after_a_takeover_from_a_killed_session::<D>)
        .test(sessions::lock_of_a_killed_process_is_free_at_once::<D>)
        .test(sessions::readers_follow_a_killed_process_at_once::<D>)
        .test(sessions::idle_killers_cost_no_hold::<D>)
        .test(sessions::only_rows_are_left::<D>)
        .test(server::killed_server_keeps_leases_and_ends_pins::<D>)
        .test(server::short_freeze_costs_no_hold::<D>)
        .test(server::long_freeze_ends_the_hold_before_another_begins::<D>)
        .test(leases::no_request_makes_a_lease_shorter::<D>)
        .test(leases::extended_lease_lasts_its_whole_time::<D>)
        .test(limits::locked_row_delays_no_other::<D>)
        .test(limits::release_waits_for_no_locked_row::<D>)
        .test(limits::late_release_of_a_reader_waits_for_no_locked_row::<D>)
        .test(limits::short_time_limits_of_the_server_cost_no_hold::<D>)
        .test(limits::leaves_a_server_that_takes_no_writes::<D>)
        .test(limits::follows_a_name_to_the_new_primary::<D>)
        .test(addresses::errors_of_connections_name_the_server::<D>)
        .test(opening::server_that_falls_silent_ends_the_opening::<D>)
        .test(opening::connection_without_an_answer_requests_nothing::<D>)
        .test(pools::locks_need_no_connection_of_the_pool::<D>)
        .test(pools::lock_of_a_transaction_leaves_no_connection_of_its_runtime::<D>)
        .test(pools::holds_outlive_the_runtime_that_opened_the_store::<D>)
        .test(pools::purge_outlives_the_runtime_that_opened_the_store::<D>)
        .test(pools::refused_table_leaves_the_pool_unchanged::<D>)
        .test(pools::any_number_of_connections_is_accepted::<D>)
        .test(tables::missing_database_is_named::<D>)
        .test(shared::holders_without_their_rows_lose_and_no_writer_passes_them::<D>)
        .test(shared::holder_without_its_row_loses_alone::<D>)
        .test(shared::rows_without_that_of_their_name_are_no_holds::<D>)
        .test(shared::renewal_of_a_reader_waits_for_short_steps::<D>)
        .test(shared::renewal_of_a_reader_takes_its_turn::<D>)
        .test(quiet::contention_causes_no_error_of_the_server::<D>)
        .test(quiet::works_under_strict_isolation::<D>)
        .test(quiet::documented_rights_are_enough::<D>)
        .test(rows::purge_deletes_locks_unused_for_long::<D>);
    of_transactions::<D>(suite).and(clocks)
}

/// Transactions of the application.
fn of_transactions<D: world::Database>(suite: TestSuite) -> TestSuite {
    suite
        .test(guarded::stale_holder_commits_nothing::<D>)
        .test(guarded::released_hold_commits_nothing::<D>)
        .test(guarded::no_client_takes_over_before_the_commit::<D>)
        .test(guarded::lock_of_a_transaction_ends_with_it::<D>)
        .test(guarded::lock_of_a_transaction_fences_the_expired_holder::<D>)
        .test(guarded::refused_transaction_keeps_no_row_locked::<D>)
        .test(guarded::try_waits_for_a_row_locked_for_a_moment::<D>)
        .test(release_in::commit_shows_data_and_release_together::<D>)
        .test(release_in::rollback_leaves_the_release_to_the_client::<D>)
        .test(release_in::release_of_a_hold_that_has_ended_is_refused::<D>)
        .test(release_in::connection_cut_at_the_commit_leaves_a_free_lock::<D>)
        .test(release_in::release_waits_for_a_row_locked_for_a_moment::<D>)
        .test(release_in::late_attempt_is_withdrawn_after_the_commit::<D>)
        .test(release_in::release_is_one_round_trip_and_may_be_cancelled::<D>)
        .test(release_in::sections_follow_each_other::<D>)
        .test(release_in::releases_under_strict_isolation_lose_no_write::<D>)
}
