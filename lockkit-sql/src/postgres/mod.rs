//! PostgreSQL: rows that are locked for microseconds, notifications, and sessions.

mod acquire;
mod admin;
mod config;
mod error;
mod guard;
mod message;
mod notify;
mod open;
mod release;
mod renew;
mod statements;
mod steps;
mod store;

use crate::backend::SqlStore;

pub(crate) use statements::ddl;
pub use store::Postgres;

/// Keeps locks in a table of PostgreSQL.
pub type PostgresStore = SqlStore<Postgres>;
