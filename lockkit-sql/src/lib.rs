#![doc = include_str!("../docs.md")]
#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    allow(
        dead_code,
        unused_variables,
        reason = "what the servers share has no use without any of them"
    )
)]

mod backend;
mod builder;
mod config;
mod ddl;
mod dialect;
mod error;
mod guarded;
mod keys;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod looks;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
mod schema;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
mod table;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod tls;
mod url;

pub use backend::SqlStore;
pub use builder::SqlStoreBuilder;
pub use config::{Options, Wake};
pub use ddl::ddl;
pub use dialect::{Dialect, Source};
pub use error::{Problem, SqlFault};
pub use guarded::{GuardedError, Inside, StillHeld, TxLock};
#[cfg(feature = "mysql")]
pub use mysql::{Mysql, MysqlStore};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresStore};
pub use schema::Schema;
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteStore};
/// The driver, whose pools, options and transactions stand in signatures here.
pub use sqlx;
pub use table::{InvalidTable, Table};
