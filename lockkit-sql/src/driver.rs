//! What the store needs of a driver, and messages on one connection.

use std::fmt;

use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use sqlx::error::BoxDynError;
use sqlx::pool::PoolOptions;
use sqlx::query::Query;
use sqlx::{
    Arguments, AssertSqlSafe, ColumnIndex, Connection as _, Database, Decode, Either, Encode,
    Execute, IntoArguments, RawSql, Row, Type, query_with, raw_sql,
};

use crate::error::{Errors, Result, after};
use crate::table::{Table, Types};
use crate::template::Template;
use crate::values::{Syntax, Value, Values};

pub(crate) type Connecting<D> = <<D as Database>::Connection as sqlx::Connection>::Options;

/// Where a store connects to: options of the driver, or those of the application's pool.
///
/// The store makes its own connections, also beside a pool: nothing that the application does with its
/// pool delays a renewal, and the store changes no session of the application. It reads the pool's options
/// for each connection, so that it uses a password that was changed there (`Pool::set_connect_options`).
/// It does not call the pool's hooks, such as `after_connect`.
pub struct Source<D: Database>(sqlx::Pool<D>);

impl<D: Database> Source<D> {
    pub(crate) fn new(options: Connecting<D>) -> Self {
        // Without these limits the pool has no task. It never makes a connection.
        let pool = PoolOptions::new().max_lifetime(None).idle_timeout(None);
        Self(pool.connect_lazy_with(options))
    }

    /// How to connect now.
    pub(crate) fn options(&self) -> Connecting<D> {
        self.read(Clone::clone)
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Connecting<D>) -> T) -> T {
        read(&self.0.connect_options())
    }
}

impl<D: Database> From<sqlx::Pool<D>> for Source<D> {
    fn from(pool: sqlx::Pool<D>) -> Self {
        Self(pool)
    }
}

/// Shows nothing of the options, which hold a password. INV-14.
impl<D: Database> fmt::Debug for Source<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

/// The device and the inode of a file. A file of the same name may be another file.
pub(crate) type FileId = (u64, u64);

/// What a connection yields for a message: the end of a statement, or one of its rows.
pub(crate) type Yields<'c, D> =
    BoxStream<'c, Result<Either<<D as Database>::QueryResult, <D as Database>::Row>, sqlx::Error>>;

/// A driver of `sqlx`.
pub trait Driver: Database<Row: Columns, Arguments: Bind + IntoArguments<Self>> {
    /// The errors of the database.
    const ERRORS: Errors;

    /// How the database writes values.
    const SYNTAX: &'static Syntax;

    /// How the database defines the tables.
    const TYPES: &'static Types;

    /// Whether each statement of a message is committed by itself.
    const COMMITS_EACH: bool = false;

    /// Whether one connection serves all requests.
    const ALONE: bool = false;

    /// Makes a connection that is ready for messages.
    fn connect(
        options: &Connecting<Self>,
    ) -> impl Future<Output = Result<Self::Connection, sqlx::Error>> + Send {
        Self::Connection::connect_with(options)
    }

    /// Where the server or the file is, for messages. INV-14.
    #[must_use]
    fn address(options: &Connecting<Self>) -> String;

    /// The same with the database and how it uses TLS, for `Debug`.
    #[must_use]
    fn shown(options: &Connecting<Self>) -> String {
        Self::address(options)
    }

    /// The file that a connection made now would use.
    #[must_use]
    fn file(_source: &Source<Self>) -> Option<FileId> {
        None
    }

    /// Sends a message.
    fn send<'c>(
        connection: &'c mut Self::Connection,
        message: impl Execute<'static, Self> + 'static,
    ) -> Yields<'c, Self>;

    /// The number of rows that a statement changed, and the number that it set as the last insert id.
    fn counts(done: &Self::QueryResult) -> (u64, u64);
}

/// The columns of a row.
pub trait Columns {
    /// A number; `None` for null.
    fn number(&self, column: usize) -> Option<i64>;

    /// A text; `None` for null.
    fn text(&self, column: usize) -> Option<String>;

    /// Bytes; `None` for null.
    fn bytes(&self, column: usize) -> Option<Vec<u8>>;

    /// Whether a column is true.
    fn truth(&self, column: usize) -> bool;
}

/// The types are not checked: MySQL returns all columns as text in reply to a text. Those of the table were
/// checked when it was opened.
impl<R: Row> Columns for R
where
    usize: ColumnIndex<R>,
    i64: for<'r> Decode<'r, R::Database>,
    String: for<'r> Decode<'r, R::Database>,
    Vec<u8>: for<'r> Decode<'r, R::Database>,
    bool: for<'r> Decode<'r, R::Database>,
{
    fn number(&self, column: usize) -> Option<i64> {
        self.try_get_unchecked(column).ok().flatten()
    }

    fn text(&self, column: usize) -> Option<String> {
        self.try_get_unchecked(column).ok().flatten()
    }

    fn bytes(&self, column: usize) -> Option<Vec<u8>> {
        self.try_get_unchecked(column).ok().flatten()
    }

    fn truth(&self, column: usize) -> bool {
        self.try_get_unchecked(column).ok().flatten() == Some(true)
    }
}

/// The values of a prepared statement.
pub trait Bind {
    /// Adds a value.
    ///
    /// # Errors
    /// - If the value is too large.
    fn bind(&mut self, value: &Value<'_>) -> Result<(), BoxDynError>;
}

impl<A: Arguments> Bind for A
where
    i64: for<'a> Encode<'a, A::Database> + Type<A::Database>,
    String: for<'a> Encode<'a, A::Database> + Type<A::Database>,
    Vec<u8>: for<'a> Encode<'a, A::Database> + Type<A::Database>,
{
    fn bind(&mut self, value: &Value<'_>) -> Result<(), BoxDynError> {
        match value {
            Value::Bytes(bytes) => self.add(bytes.to_vec()),
            Value::Number(number) => self.add(*number),
            Value::Holder(holder) => self.add(holder.to_string()),
            Value::Sql(text) => self.add(text.clone()),
        }
    }
}

/// The statements that create the tables.
pub(crate) fn ddl<D: Driver>(table: &Table) -> String {
    D::TYPES.ddl(table, D::SYNTAX.quote)
}

/// A message of any number of statements.
pub(crate) fn text(text: &str) -> RawSql {
    raw_sql(AssertSqlSafe(text))
}

/// A message of one prepared statement with its values.
pub(crate) fn prepared<D: Driver>(
    template: &Template,
    values: &Values<'_>,
) -> Query<'static, D, D::Arguments> {
    let mut arguments = D::Arguments::default();
    for value in template.bound(values) {
        let added = arguments.bind(value);
        // Names, holders and numbers can always be encoded; the server refuses what is missing.
        debug_assert!(added.is_ok(), "{value:?}");
    }
    query_with(AssertSqlSafe(template.prepared()), arguments)
}

/// The result of one statement.
#[derive(Debug)]
pub struct Reply<D: Database> {
    /// The number of rows that it changed.
    pub(crate) changed: u64,
    /// The number that it set as the last insert id.
    pub(crate) insert_id: u64,
    pub(crate) rows: Vec<D::Row>,
}

/// Sends a message and reads all replies: only then can the connection be used again.
pub(crate) async fn send<D: Driver>(
    connection: &mut D::Connection,
    operation: &'static str,
    message: impl Execute<'static, D> + 'static,
) -> Result<Vec<Reply<D>>> {
    let mut yields = D::send(connection, message);
    let (mut replies, mut rows) = (Vec::new(), Vec::new());
    loop {
        match yields.try_next().await {
            Ok(Some(Either::Right(row))) => rows.push(row),
            Ok(Some(Either::Left(done))) => {
                let (changed, insert_id) = D::counts(&done);
                replies.push(Reply {
                    changed,
                    insert_id,
                    rows: std::mem::take(&mut rows),
                });
            }
            Ok(None) => return Ok(replies),
            Err(error) => {
                let error = D::ERRORS.of(operation, false, &error);
                // Earlier statements may have been executed.
                return Err(after(D::COMMITS_EACH && changed(&replies).is_some())(error));
            }
        }
    }
}

/// The rows of all replies.
pub(crate) fn rows<D: Database>(replies: &[Reply<D>]) -> impl Iterator<Item = &D::Row> {
    replies.iter().flat_map(|reply| &reply.rows)
}

/// Whether any statement changed a row.
pub(crate) fn changed<D: Database>(replies: &[Reply<D>]) -> Option<&Reply<D>> {
    replies.iter().find(|reply| reply.changed > 0)
}

#[cfg(all(test, feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod tests {
    use lockkit_core::Outcome;

    use super::*;
    use crate::error::Problem;

    #[test]
    fn codes_tell_the_effect() {
        use Outcome::{Indeterminate, Rejected, Unavailable};
        use Problem::{Busy, Connection, Limit, Permission, ReadOnly, Refused, Schema};
        let postgres = [
            ("25006", ReadOnly, Unavailable),
            ("28P01", Permission, Rejected),
            ("42501", Permission, Rejected),
            ("42P01", Schema, Rejected),
            ("55P03", Busy, Unavailable),
            ("40001", Busy, Unavailable),
            ("23505", Busy, Unavailable),
            ("53300", Limit, Unavailable),
            ("57P03", Connection, Unavailable),
            ("57P01", Connection, Indeterminate),
            ("25P04", Connection, Indeterminate),
            ("08P01", Connection, Indeterminate),
            ("22021", Refused, Rejected),
        ];
        let mysql = [
            ("1290", ReadOnly, Unavailable),
            ("1792", ReadOnly, Unavailable),
            ("1836", ReadOnly, Unavailable),
            ("3100", ReadOnly, Unavailable),
            ("1045", Permission, Rejected),
            ("1146", Schema, Rejected),
            ("1205", Busy, Unavailable),
            ("1213", Busy, Unavailable),
            ("3101", Busy, Unavailable),
            ("1040", Limit, Unavailable),
            ("1135", Limit, Unavailable),
            ("1180", Limit, Indeterminate),
            ("9001", Connection, Unavailable),
            ("1927", Connection, Indeterminate),
            ("1064", Refused, Rejected),
            ("HY000", Refused, Rejected),
        ];
        // The upper bytes say why it is busy, and which operation on the disk has failed.
        let sqlite = [
            ("5", Busy, Unavailable),
            ("517", Busy, Unavailable),
            ("8", ReadOnly, Rejected),
            ("1032", ReadOnly, Rejected),
            ("13", Limit, Unavailable),
            ("778", Limit, Indeterminate),
            ("26", Refused, Rejected),
        ];
        for (errors, codes) in [
            (sqlx::Postgres::ERRORS, &postgres[..]),
            (sqlx::MySql::ERRORS, &mysql),
            (sqlx::Sqlite::ERRORS, &sqlite),
        ] {
            for (code, problem, outcome) in codes {
                assert_eq!((errors.classify)(code, ""), (*problem, *outcome), "{code}");
            }
        }
        let missing = (sqlx::Sqlite::ERRORS.classify)("1", "no such table: a");
        assert_eq!(missing, (Schema, Rejected));
    }
}
