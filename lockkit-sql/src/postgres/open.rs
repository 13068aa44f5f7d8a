//! Opens the store: finds, creates or refuses the table.
//!
//! The role's `search_path` decides what a name without a schema means, which differs between roles and
//! sessions. So it is resolved once, and every query names the schema from then on.

use lockkit_core::Capabilities;
use sqlx::postgres::PgConnectOptions;

use super::driver::ERRORS;
use super::queries::Queries;
use crate::config::{Options, Schema};
use crate::driver::{Columns as _, rows};
use crate::error::{Problem, Result};
use crate::pool::Pool;
use crate::queries::Common;
use crate::steps::check_table;
use crate::values::Values;

/// A pooler refuses settings that it does not know, and no query needs this one.
pub(super) fn plain(options: PgConnectOptions) -> PgConnectOptions {
    options.extra_float_digits(None)
}

/// Finds the table, or creates it. Returns the queries for it, with its schema.
pub(super) async fn find(
    pool: &Pool<sqlx::Postgres>,
    options: &Options,
    rules: Capabilities,
) -> Result<(Common, Queries)> {
    let table = &options.table;
    let (common, queries) = &Queries::new(table, rules);
    let mut found = schemas(pool, queries).await?;
    let is_visible = |found: &[(String, bool)]| found.iter().any(|(_, visible)| *visible);
    if !is_visible(&found)
        && options.schema == Schema::Create
        && let Some((schema, _)) = found.first()
    {
        let text = format!(
            "the schema `{schema}` has a table `{table}`, and the search_path of this user does not \
                 lead to it: write `table={schema}.{table}`, or the schema in which another is to be made"
        );
        return Err(ERRORS.rejected("open", Problem::Schema, text));
    }
    let visible: Vec<_> = found.iter().filter(|(_, visible)| *visible).collect();
    if let [(one, _), (other, _), ..] = visible[..] {
        let text = format!(
            "the search_path of this user leads to a table `{table}` in the schema `{one}` and to one in \
             `{other}`: write `table=` with the schema"
        );
        return Err(ERRORS.rejected("open", Problem::Schema, text));
    }
    check_table(pool, common, options).await?;
    if !is_visible(&found) {
        found = schemas(pool, queries).await?;
    }
    let found = found.into_iter().find(|(_, visible)| *visible);
    let found = found.map_or_else(|| table.clone(), |(schema, _)| table.within(schema));
    Ok(Queries::new(&found, rules))
}

/// The schemas that have a table of this name, and whether each is the one that was asked for, or is in the search path.
async fn schemas(pool: &Pool<sqlx::Postgres>, queries: &Queries) -> Result<Vec<(String, bool)>> {
    let schemas = queries.schemas.text(&Values::new());
    let replies = pool.ask_to_open(&schemas).await?;
    let found = rows(&replies).map(|row| Some((row.text(0)?, row.truth(1))));
    let found: Option<_> = found.collect();
    found.ok_or_else(|| ERRORS.unreadable("open"))
}
