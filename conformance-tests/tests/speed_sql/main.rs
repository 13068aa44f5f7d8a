//! How fast the stores in databases are, against the least that the server itself needs for the same.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_sql` shows what
//! a program sees; without optimisation our side of a ratio costs several times as much, so the
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
mod solo;
#[cfg(unix)]
mod world;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::servers::{MysqlPrograms, PostgresPrograms, guardian};
    use world::{Maria, Mysql8, Postgres};

    if let Some(code) = guardian::serve() {
        return code;
    }
    let postgres = Ground::new("speed-of-postgres", PostgresPrograms::system().missing())
        .trial(solo::a_cycle_is_two_round_trips::<Postgres>)
        .trial(solo::a_cycle_costs_little_more_than_two_updates::<Postgres>)
        .trial(solo::a_grant_waits_for_the_disk_and_a_release_does_not)
        .trial(crowd::eight_through_the_proxy_hand_over_in_two_trips)
        .trial(crowd::eight_on_loopback_beat_a_polled_row)
        .trial(crowd::a_waiter_is_served_at_once)
        .trial(crowd::a_waiter_whose_wake_up_is_lost_is_served_by_its_next_look)
        .trial(holds::five_thousand_leases_are_renewed_in_ten_statements::<Postgres>);
    let mariadb = Ground::new("speed-of-mariadb", MysqlPrograms::mariadb().missing())
        .trial(solo::a_cycle_is_two_round_trips::<Maria>)
        .trial(solo::a_cycle_costs_little_more_than_two_updates::<Maria>)
        .trial(holds::five_thousand_leases_are_renewed_in_ten_statements::<Maria>);
    let mysql = Ground::new("speed-of-mysql", MysqlPrograms::mysql().missing())
        .trial(solo::a_cycle_is_two_round_trips::<Mysql8>)
        .trial(solo::a_cycle_costs_little_more_than_two_updates::<Mysql8>);
    let sqlite = Ground::new("speed-of-sqlite", None)
        .trial(solo::a_cycle_in_a_file_costs_little_more_than_two_updates);
    // One after the other: each wants the machine.
    postgres.and(mariadb).and(mysql).and(sqlite).run(1)
}
