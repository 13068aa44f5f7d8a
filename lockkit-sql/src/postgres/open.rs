//! Which table it is: it is found, made or refused when the store is opened.
//!
//! A name without a schema means what the role's `search_path` makes of it, which differs between roles
//! and between sessions. So it is looked up once, and every statement names the schema from then on.

use lockkit_core::BackendError;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::error::{ERRORS, rejected};
use super::message::{Message, ask};
use super::statements::Statements;
use crate::config::Options;
use crate::error::Problem;
use crate::pool::{Pool, Use};
use crate::schema::{Schema, misfit};
use crate::table::Table;

const COLUMNS: [(&str, &str); 8] = [
    ("name", "bytea"),
    ("holder", "text"),
    ("token", "bigint"),
    ("expires_at", "bigint"),
    ("waiting_until", "bigint"),
    ("session", "bigint"),
    ("UNIQUE", "(name)"),
    ("UNIQUE", "(name, token)"),
];

/// The table with its schema, made if that is wished, and compared.
pub(super) async fn table_of(
    pool: &Pool<sqlx::Postgres>,
    statements: &Statements,
    options: &Options,
) -> Result<Option<Table>, BackendError> {
    let table = &options.table;
    let mut places = places(pool, statements).await?;
    if !places.iter().any(|place| place.visible) && options.schema == Schema::Create {
        if let Some(place) = places.first() {
            let schema = &place.schema;
            let text = format!(
                "the schema `{schema}` has a table `{table}`, and the search_path of this user does not \
                 lead to it: write `table={schema}.{table}`, or the schema in which another is to be made"
            );
            return Err(rejected("open", Problem::Schema, &text));
        }
        send(pool, statements.create()).await?;
        places = self::places(pool, statements).await?;
    }
    places.retain(|place| place.visible);
    if let [one, other, ..] = &*places {
        let text = format!(
            "the search_path of this user leads to a table `{table}` in the schema `{}` and to one in \
             `{}`: write `table=` with the schema",
            one.schema, other.schema
        );
        return Err(rejected("open", Problem::Schema, &text));
    }
    let columns = columns(pool, statements).await?;
    if let Some(text) = misfit_of(table, &columns) {
        return Err(rejected("open", Problem::Schema, &text));
    }
    Ok(places.pop().map(|place| table.within(place.schema)))
}

/// Where there is a table of this name.
struct Place {
    schema: String,
    /// Whether it is the one that was asked for by its schema, or is in a schema of the path.
    visible: bool,
}

async fn places(
    pool: &Pool<sqlx::Postgres>,
    statements: &Statements,
) -> Result<Vec<Place>, BackendError> {
    let rows = send(pool, statements.places()).await?;
    let place = |row: &PgRow| {
        Ok(Place {
            schema: row.try_get(0)?,
            visible: row.try_get(1)?,
        })
    };
    let places: Result<_, sqlx::Error> = rows.iter().map(place).collect();
    places.map_err(|_| ERRORS.unreadable("open"))
}

async fn columns(
    pool: &Pool<sqlx::Postgres>,
    statements: &Statements,
) -> Result<Vec<(String, String)>, BackendError> {
    let rows = send(pool, statements.columns()).await?;
    let column = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
    let columns: Result<_, sqlx::Error> = rows.iter().map(column).collect();
    columns.map_err(|_| ERRORS.unreadable("open"))
}

async fn send(pool: &Pool<sqlx::Postgres>, text: String) -> Result<Vec<PgRow>, BackendError> {
    ask(pool, "open", Use::Step, Message::Text(text)).await
}

fn misfit_of(table: &Table, found: &[(String, String)]) -> Option<String> {
    let keys = |wanted: &str| {
        found
            .iter()
            .any(|(name, kind)| name == "UNIQUE" && kind == wanted)
    };
    let missing: Vec<(&str, &str)> = COLUMNS
        .into_iter()
        .filter(|(name, kind)| *name != "UNIQUE" || !keys(kind))
        .collect();
    let columns: Vec<(String, String)> = found
        .iter()
        .filter(|(name, _)| name != "UNIQUE")
        .cloned()
        .collect();
    misfit(table, &missing, &columns)
}
