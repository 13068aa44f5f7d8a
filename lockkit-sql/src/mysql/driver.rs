//! The driver of MySQL and MariaDB, and the error codes of the servers.

use lockkit_core::Outcome;
use lockkit_core::url::host_and_port;
use sqlx::mysql::{MySqlConnectOptions, MySqlQueryResult};
use sqlx::{Connection as _, Execute, Executor as _, MySqlConnection};

use crate::driver::{Driver, Yields};
use crate::error::{Errors, Problem};
use crate::table::{RIGHTS, Types};
use crate::values::Syntax;

pub(super) const ERRORS: Errors = Errors {
    backend: "mysql",
    classify,
    // A deadlock, a row that changed since the transaction's snapshot, two requests that make one row, and a commit that
    // the group has rolled back.
    conflicts: &["1213", "1020", "1062", "3101"],
    // An unknown statement, one that cannot be prepared, too many, and a table that has changed.
    unprepared: &["1243", "1295", "1461", "1615"],
};

/// Without autocommit, which a server may have turned off, a row would stay locked. A request that its client has given up
/// must not wait for a row for 50 seconds, as the server's default is.
const SETTINGS: &str = "SET autocommit = 1, innodb_lock_wait_timeout = 1;";

impl Driver for sqlx::MySql {
    const ERRORS: Errors = ERRORS;
    const SYNTAX: &'static Syntax = &Syntax {
        quote: '`',
        bytes: ("x'", "'"),
        // When the statement began, in UTC, and what has passed since then. The second part is a difference
        // of local times: the remainder removes a change of summer time.
        clock: "(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) \
            + GREATEST(0, MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)), 900000000)))",
        numbered: None,
        names: None,
    };
    const TYPES: &'static Types = &Types {
        before: "",
        rights: RIGHTS,
        bytes: "VARBINARY(512)",
        holder: "VARBINARY(100)",
        number: "BIGINT",
        key: ",
    UNIQUE KEY {bare}_token (name, token)",
        options: " ENGINE = InnoDB",
        parts: &[
            ("PRIMARY KEY", "(name)"),
            ("UNIQUE KEY", "(name,token)"),
            ("ENGINE", "InnoDB"),
        ],
    };
    const COMMITS_EACH: bool = true;

    async fn connect(options: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = MySqlConnection::connect_with(options).await?;
        sqlx::raw_sql(SETTINGS).execute(&mut connection).await?;
        Ok(connection)
    }

    fn address(options: &MySqlConnectOptions) -> String {
        let tcp = || host_and_port(options.get_host(), options.get_port());
        let socket = options.get_socket();
        socket.map_or_else(tcp, |path| path.display().to_string())
    }

    fn shown(options: &MySqlConnectOptions) -> String {
        let (address, mode) = (Self::address(options), options.get_ssl_mode());
        let database = options.get_database().unwrap_or_default();
        format!("{address}/{database} {mode:?}")
    }

    fn send<'c>(
        connection: &'c mut MySqlConnection,
        message: impl Execute<'static, Self> + 'static,
    ) -> Yields<'c, Self> {
        connection.fetch_many(message)
    }

    fn counts(done: &MySqlQueryResult) -> (u64, u64) {
        (done.rows_affected(), done.last_insert_id())
    }
}

fn classify(code: &str, _message: &str) -> (Problem, Outcome) {
    match code.parse::<u32>().unwrap_or(0) {
        // Started with read-only, a replica, a transaction that may not write.
        1290 | 1792 | 1836 | 3100 => (Problem::ReadOnly, Outcome::Unavailable),
        // No such user, password, database, right.
        1044 | 1045 | 1049 | 1130 | 1142 | 1143 | 1227 | 1370 | 1410 | 1698 => {
            (Problem::Permission, Outcome::Rejected)
        }
        // No such table or column, or one that takes no such value.
        1054 | 1109 | 1136 | 1146 | 1364 | 1366 | 1406 => (Problem::Schema, Outcome::Rejected),
        // Waits and conflicts, after which the statement is rolled back; the limit of a statement's
        // time, which MariaDB and MySQL number differently.
        1205 | 1213 | 1020 | 1062 | 1317 | 1637 | 1969 | 3024 | 3101 | 3572 => {
            (Problem::Busy, Outcome::Unavailable)
        }
        // Too many connections, or too many of this user; no memory, no disk, no thread.
        1021 | 1037 | 1038 | 1040 | 1041 | 1114 | 1135 | 1203 | 1206 | 1226 => {
            (Problem::Limit, Outcome::Unavailable)
        }
        // A failed commit.
        1180 => (Problem::Limit, Outcome::Indeterminate),
        // ProxySQL found no server.
        9001 => (Problem::Connection, Outcome::Unavailable),
        // The server shut down or killed the session, perhaps after the commit.
        1053 | 1077..=1080 | 1152..=1161 | 1184 | 1927 | 3032 | 3169 | 4031 => {
            (Problem::Connection, Outcome::Indeterminate)
        }
        _ => (Problem::Refused, Outcome::Rejected),
    }
}
