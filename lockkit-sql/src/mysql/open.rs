//! Opens the store: refuses servers that cannot keep locks, and creates or checks the table.

use lockkit_core::Capabilities;

use super::driver::ERRORS;
use super::queries::Queries;
use crate::config::Options;
use crate::driver::{Columns as _, Reply, rows};
use crate::error::{Problem, Result};
use crate::pool::Pool;
use crate::queries::Common;
use crate::steps::check_table;

/// Which server it is. The comment is a part of the statement on MariaDB alone.
const SERVER: &str = "SELECT VERSION(), 1 /*M!100600 + 1 */; \
     SHOW VARIABLES WHERE Variable_name IN \
     ('wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode');";

/// Finds the table, or creates it. Returns the queries for this server.
pub(super) async fn find(
    pool: &Pool<sqlx::MySql>,
    options: &Options,
    rules: Capabilities,
) -> Result<(Common, Queries)> {
    let maria = is_maria(&pool.ask_to_open(SERVER).await?)?;
    let (common, queries) = Queries::new(&options.table, maria, rules);
    check_table(pool, &common, options).await?;
    Ok((common, queries))
}

/// Reads the reply to [`SERVER`].
///
/// # Errors
/// If several servers take writes at once, or rows are not locked as `InnoDB` does.
fn is_maria(replies: &[Reply<sqlx::MySql>]) -> Result<bool> {
    let mut rows = rows(replies);
    let first = rows.next().ok_or_else(|| ERRORS.unreadable("open"))?;
    let version = first.text(0).unwrap_or_default();
    let variables: Vec<(String, String)> = rows
        .filter_map(|row| Some((row.text(0)?, row.text(1)?)))
        .collect();
    match refusal(&version, &variables) {
        None => Ok(first.number(1) == Some(2)),
        Some(why) => Err(ERRORS.rejected("open", Problem::Refused, why)),
    }
}

fn refusal(version: &str, variables: &[(String, String)]) -> Option<&'static str> {
    let version = version.to_ascii_lowercase();
    let set = |name: &str| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    };
    let several = set("group_replication_single_primary_mode").eq_ignore_ascii_case("off");
    let refusals = [
        (
            version.contains("tidb"),
            "TiDB cannot keep locks here: its row locks and its clock are not those of MySQL",
        ),
        (
            version.contains("vitess"),
            "Vitess cannot keep locks here: what a session does may be spread over servers",
        ),
        (
            set("wsrep_on").eq_ignore_ascii_case("on"),
            "a Galera cluster cannot keep locks here: each node has its own clock and its own row locks",
        ),
        (
            several && !set("group_replication_group_name").is_empty(),
            "Group Replication with several primaries cannot keep locks here: each has its own clock \
             and its own row locks",
        ),
    ];
    refusals
        .iter()
        .find(|(applies, _)| *applies)
        .map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_servers_whose_row_locks_are_not_shared() {
        let refused = |version: &str, variables: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let variables: Vec<_> = variables.iter().map(owned).collect();
            refusal(version, &variables).map(|why| why.split(' ').next().unwrap_or_default())
        };
        let group = ("group_replication_group_name", "a1");
        let mode = |value| ("group_replication_single_primary_mode", value);
        for (version, variables, expected) in [
            ("10.11.6-MariaDB", &[("wsrep_on", "OFF")][..], None),
            ("8.0.36", &[group, mode("ON")], None),
            // The plugin is there and no group.
            (
                "8.0.36",
                &[("group_replication_group_name", ""), mode("OFF")],
                None,
            ),
            ("10.11.6-MariaDB", &[("wsrep_on", "ON")], Some("a")),
            ("8.0.36", &[group, mode("OFF")], Some("Group")),
            ("8.0.11-TiDB-v7.5.1", &[], Some("TiDB")),
            ("8.0.30-Vitess", &[], Some("Vitess")),
        ] {
            assert_eq!(
                refused(version, variables),
                expected,
                "{version} {variables:?}"
            );
        }
    }
}
