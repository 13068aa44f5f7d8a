#![doc = include_str!("../docs.md")]
#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "mysql", feature = "postgres")),
    allow(
        dead_code,
        unused_variables,
        reason = "some of what the databases share is used by one or two of them"
    )
)]

mod backend;
mod builder;
mod config;
mod dialect;
mod driver;
mod error;
mod guarded;
#[cfg(feature = "mysql")]
mod mysql;
mod places;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod queries;
mod release_in;
mod session;
mod shares;
#[cfg(feature = "sqlite")]
mod sqlite;
mod steps;
mod table;
mod template;
mod turns;
mod url;
mod values;

pub use backend::SqlStore;
pub use builder::SqlStoreBuilder;
pub use config::{Schema, Wake};
pub use dialect::Dialect;
pub use driver::Source;
pub use error::{Problem, SqlFault};
pub use guarded::{GuardedError, StillHeld, TxLock};
#[cfg(feature = "mysql")]
pub use mysql::{Mysql, MysqlStore};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresStore};
pub use release_in::{ReleaseIn, UncommittedRelease};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteStore};
/// The driver, whose pools, options and transactions stand in signatures here.
pub use sqlx;
pub use table::{InvalidTable, Table};
pub use url::ddl;
