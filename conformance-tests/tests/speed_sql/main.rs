//! How fast the stores in databases are, against the least that the server itself needs for the same.
//!
//! Figures are printed. The bounds are ratios within one run, and round trips: they hold on a busy
//! machine of two processors. `cargo test --release -p conformance-tests --test speed_sql` shows what
//! a program sees; without optimisation our side of a ratio costs several times as much, so the
//! bounds of processor time are wider there.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod bare;
mod crowd;
mod holds;
mod modes;
mod solo;
mod turns;
mod world;

use std::process::ExitCode;

use conformance_tests::servers::{MysqlPrograms, PostgresPrograms};
use conformance_tests::{TestSuite, mode_speed};
use modes::Shared;
use world::{Maria, Mysql8, Postgres};

fn main() -> ExitCode {
    // One after the other: each wants the machine.
    TestSuite::main(1, tests)
}

fn tests() -> TestSuite {
    let postgres = TestSuite::new("speed-of-postgres", PostgresPrograms::system().missing())
        .test(solo::cycle_is_two_round_trips::<Postgres>)
        .test(solo::cycle_costs_little_more_than_two_updates::<Postgres>)
        .test(solo::transaction_that_releases_is_five_round_trips)
        .test(solo::grant_waits_for_the_disk_and_release_does_not)
        .test(crowd::eight_through_the_proxy_hand_over_in_two_trips)
        .test(crowd::eight_on_loopback_are_faster_than_a_polled_row)
        .test(crowd::waiter_is_served_at_once)
        .test(crowd::waiter_whose_wake_up_is_lost_is_served_by_its_next_poll)
        .test(turns::eight_on_loopback_take_turns::<Postgres>)
        .test(modes::waiting_reader_asks_twice_each_time)
        .test(holds::five_thousand_leases_are_renewed_in_ten_statements::<Postgres>);
    let mariadb = TestSuite::new("speed-of-mariadb", MysqlPrograms::mariadb().missing())
        .test(solo::cycle_is_two_round_trips::<Maria>)
        .test(solo::cycle_costs_little_more_than_two_updates::<Maria>)
        .test(turns::eight_on_loopback_take_turns::<Maria>)
        .test(holds::five_thousand_leases_are_renewed_in_ten_statements::<Maria>);
    let mysql = TestSuite::new("speed-of-mysql", MysqlPrograms::mysql().missing())
        .test(solo::cycle_is_two_round_trips::<Mysql8>)
        .test(solo::cycle_costs_little_more_than_two_updates::<Mysql8>)
        .test(turns::eight_on_loopback_take_turns::<Mysql8>);
    let sqlite = TestSuite::new("speed-of-sqlite", None)
        .test(solo::cycle_in_a_file_costs_little_more_than_two_updates)
        .test(turns::eight_at_a_file_take_turns);
    let postgres = mode_speed::add::<Shared<Postgres>>(postgres);
    postgres.and(mariadb).and(mysql).and(sqlite)
}
