//! The driver of PostgreSQL, and the error codes of the server and of its poolers.

use lockkit_core::Outcome;
use lockkit_core::url::host_and_port;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgQueryResult};
use sqlx::{Execute, Executor as _};

use crate::driver::{Driver, Yields};
use crate::error::{Errors, Problem};
use crate::table::{RIGHTS, Types};
use crate::values::{Names, Syntax};

pub(super) const ERRORS: Errors = Errors {
    backend: "postgres",
    classify,
    // Under an isolation level above ours, and two requests that make one row: all unique keys are ours.
    conflicts: &["40001", "40P01", "23505"],
    // No such statement, one of that name, and a table that has changed.
    unprepared: &["26000", "42P05", "0A000"],
};

impl Driver for sqlx::Postgres {
    const ERRORS: Errors = ERRORS;
    const SYNTAX: &'static Syntax = &Syntax {
        quote: '"',
        bytes: ("E'\\\\x", "'::bytea"),
        // `now()` would be the start of the transaction. A `double` has the precision of microseconds for some
        // centuries, and costs the server half as much as `extract`.
        clock: "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
        numbered: Some('$'),
        names: Some(Names {
            // The same plan serves all values. Otherwise the server makes five for some values first, for a millisecond each.
            // Servers before 12 do not know the setting.
            first: "SELECT CASE WHEN current_setting('plan_cache_mode', true) IS NOT NULL
                THEN set_config('plan_cache_mode', 'force_generic_plan', false) END;\n",
            types: ["bytea", "bigint", "text"],
        }),
    };
    const TYPES: &'static Types = &Types {
    // Clients that change the table at the same time would get an error of the catalogue: they take turns. The number
    // is `lockkit`. Without `BEGIN`: the message is one transaction, and ends with an error too.
    before: "SELECT pg_advisory_xact_lock(x'6c6f636b6b697400'::bigint); ",
    rights: RIGHTS,
    bytes: "bytea",
    holder: "text",
    number: "bigint",
    key: ",
    -- A new hold changes a column of this key, so that it waits for transactions that have locked the key.
    UNIQUE (name, token)",
    options: " WITH (fillfactor = 50)",
    parts: &[("UNIQUE", "(name)"), ("UNIQUE", "(name, token)")],
};

    fn address(options: &PgConnectOptions) -> String {
        let socket = options.get_socket().map(|path| path.to_string_lossy());
        let host = socket.as_deref().unwrap_or_else(|| options.get_host());
        host_and_port(host, options.get_port())
    }

    fn shown(options: &PgConnectOptions) -> String {
        let address = Self::address(options);
        // Without one in the URL it is the user's name.
        let named = |database: &&str| *database != options.get_username();
        let database = options.get_database().filter(named).unwrap_or_default();
        format!("{address}/{database} {:?}", options.get_ssl_mode())
    }

    fn send<'c>(
        connection: &'c mut PgConnection,
        message: impl Execute<'static, Self> + 'static,
    ) -> Yields<'c, Self> {
        connection.fetch_many(message)
    }

    fn counts(done: &PgQueryResult) -> (u64, u64) {
        (done.rows_affected(), 0)
    }
}

fn classify(code: &str, _message: &str) -> (Problem, Outcome) {
    let class = code.get(..2).unwrap_or_default();
    match (code, class) {
        ("25006", _) => (Problem::ReadOnly, Outcome::Unavailable),
        ("42501" | "3D000", _) | (_, "28") => (Problem::Permission, Outcome::Rejected),
        // No such table, column, schema; another type or no index of that kind.
        ("42P01" | "42703" | "3F000" | "42804" | "42883" | "42P10" | "42846", _) => {
            (Problem::Schema, Outcome::Rejected)
        }
        // Lock and statement timeouts, conflicts of transactions: rolled back.
        ("55P03" | "57014" | "40001" | "40P01" | "23505" | "25P02", _) => {
            (Problem::Busy, Outcome::Unavailable)
        }
        // Too many connections, out of memory or disk.
        (_, "53") | ("58030", _) => (Problem::Limit, Outcome::Unavailable),
        ("57P03", _) => (Problem::Connection, Outcome::Unavailable),
        // Ended by somebody, or with the server, perhaps after the commit.
        (_, "57" | "08") | ("40003" | "25P03" | "25P04", _) => {
            (Problem::Connection, Outcome::Indeterminate)
        }
        _ => (Problem::Refused, Outcome::Rejected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_host_or_socket_with_port() {
        let address = |host: &str| {
            let options = PgConnectOptions::new_without_pgpass().host(host).port(7);
            sqlx::Postgres::address(&options)
        };
        assert_eq!(address("db"), "db:7");
        assert_eq!(address("::1"), "[::1]:7");
        assert_eq!(address("/run/postgresql"), "/run/postgresql:7");
    }
}
