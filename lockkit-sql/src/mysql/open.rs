//! Opens the store: refuses servers that cannot keep locks, and creates or checks the table.

use std::convert::identity;
use std::sync::atomic::AtomicBool;

use lockkit_core::{BackendError, Outcome};

use super::connection::{Reply, number, text};
use super::error::ERRORS;
use super::server::Mysql;
use super::statements::{SPELLING, Statements, ddl};
use crate::config::Options;
use crate::dialect::Source;
use crate::error::Problem;
use crate::pin::Pins;
use crate::pool::{Pool, Use};
use crate::remembered::Remembered;
use crate::schema::{Schema, misfit};
use crate::table::Table;

const COLUMNS: [(&str, &str); 9] = [
    ("name", "varbinary(512)"),
    ("holder", "varbinary(100)"),
    ("token", "bigint"),
    ("expires_at", "bigint"),
    ("waiting_until", "bigint"),
    ("session", "bigint"),
    ("PRIMARY KEY", "(name)"),
    ("UNIQUE KEY", "(name,token)"),
    ("ENGINE", "InnoDB"),
];

/// Which server it is. The comment is a part of the statement on MariaDB alone.
const SERVER: &str = "SELECT VERSION(), 1 /*M!100600 + 1 */; \
     SHOW VARIABLES WHERE Variable_name IN \
     ('wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode');";

impl Mysql {
    pub(super) async fn connect(
        source: Source<sqlx::MySql>,
        options: Options,
    ) -> Result<Self, BackendError> {
        let change = |file: &str| {
            #[cfg(feature = "mutants")]
            if let Some(mutant) = options.mutant {
                return super::mutant::broken(mutant, file);
            }
            file.to_owned()
        };
        let mut this = Self {
            pool: Pool::new(source, identity, &options, ERRORS),
            statements: Statements::new(&options.table, false, change),
            prepares: AtomicBool::new(options.prepare),
            pins: options.pin.then(Pins::default),
            names: Remembered::default(),
        };
        if is_maria(&this.ask("open", Use::Step, SERVER).await?)? {
            this.statements = Statements::new(&options.table, true, change);
        }
        let table = &options.table;
        let mut found = this.columns(table).await?;
        if found.is_empty() && options.schema == Schema::Create {
            this.ask("open", Use::Step, &ddl(table)).await?;
            found = this.columns(table).await?;
        }
        if let Some(text) = misfit(table, &COLUMNS, &found) {
            return Err(ERRORS.fault("open", Problem::Schema, Outcome::Rejected, text));
        }
        if let Some(pins) = &this.pins {
            pins.session(this.open_session()).await?;
        }
        Ok(this)
    }

    /// Columns and keys, as the server would create the table; empty if there is no table.
    async fn columns(&self, table: &Table) -> Result<Vec<(String, String)>, BackendError> {
        // To show a table that does not exist would be an error in the server's log.
        let place = table
            .schema()
            .map_or(String::new(), |schema| format!("FROM `{schema}` "));
        let known = format!("SHOW TABLES {place}LIKE '{}'", table.name());
        let known = self.ask("open", Use::Step, &known).await?;
        let mut known = known.iter().flat_map(|reply| &reply.rows);
        // In the pattern `_` matches any character.
        if !known.any(|row| text(row, 0).as_deref() == Some(table.name())) {
            return Ok(Vec::new());
        }
        let show = format!("SHOW CREATE TABLE {}", table.quoted(SPELLING.quote));
        let replies = self.ask("open", Use::Step, &show).await?;
        let row = replies.first().and_then(|reply| reply.rows.first());
        let text = row.and_then(|row| text(row, 1));
        Ok(definitions(&text.ok_or_else(|| ERRORS.unreadable("open"))?))
    }
}

/// Reads the reply to [`SERVER`].
///
/// # Errors
/// If several servers take writes at once, or rows are not locked as `InnoDB` does.
fn is_maria(replies: &[Reply]) -> Result<bool, BackendError> {
    let mut rows = replies.iter().flat_map(|reply| &reply.rows);
    let first = rows.next().ok_or_else(|| ERRORS.unreadable("open"))?;
    let version = text(first, 0).unwrap_or_default();
    let variables: Vec<(String, String)> = rows
        .filter_map(|row| Some((text(row, 0)?, text(row, 1)?)))
        .collect();
    match refusal(&version, &variables) {
        None => Ok(number(first, 1) == Some(2)),
        Some(why) => Err(ERRORS.fault("open", Problem::Refused, Outcome::Rejected, why)),
    }
}

fn refusal(version: &str, variables: &[(String, String)]) -> Option<&'static str> {
    let version = version.to_ascii_lowercase();
    let set = |name: &str| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    };
    if version.contains("tidb") {
        return Some(
            "TiDB cannot keep locks here: its row locks and its clock are not those of MySQL",
        );
    }
    if version.contains("vitess") {
        return Some(
            "Vitess cannot keep locks here: what a session does may be spread over servers",
        );
    }
    if set("wsrep_on").eq_ignore_ascii_case("on") {
        return Some(
            "a Galera cluster cannot keep locks here: each node has its own clock and its own row locks",
        );
    }
    let several = set("group_replication_single_primary_mode").eq_ignore_ascii_case("off");
    if several && !set("group_replication_group_name").is_empty() {
        return Some(
            "Group Replication with several primaries cannot keep locks here: each has its own clock \
             and its own row locks",
        );
    }
    None
}

/// The parts of `CREATE TABLE` that count: each column with its type, each key with its columns, and the
/// storage engine.
fn definitions(text: &str) -> Vec<(String, String)> {
    let plain = text.replace('`', "");
    let part = |line: &str| {
        let line = line.trim().trim_end_matches(',');
        if let Some(engine) = line.strip_prefix(") ENGINE=") {
            let engine = engine.split(' ').next().unwrap_or_default();
            return Some(("ENGINE".to_owned(), engine.to_owned()));
        }
        if let Some(columns) = line.strip_prefix("PRIMARY KEY ") {
            return Some(("PRIMARY KEY".to_owned(), columns.to_owned()));
        }
        if let Some(named) = line.strip_prefix("UNIQUE KEY ") {
            let (_, columns) = named.split_once(' ')?;
            return Some(("UNIQUE KEY".to_owned(), columns.to_owned()));
        }
        let (name, rest) = line.split_once(' ')?;
        let kind = rest.split(' ').next().unwrap_or_default();
        // Newer servers do not show the display width.
        Some((name.to_owned(), kind.replace("bigint(20)", "bigint")))
    };
    plain.lines().filter_map(part).collect()
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

    #[test]
    fn reads_definitions_of_each_server() {
        let old = "CREATE TABLE `t` (\n  `name` varbinary(512) NOT NULL,\n  `token` bigint(20) NOT NULL,\n  \
                   PRIMARY KEY (`name`),\n  UNIQUE KEY `t_token` (`name`,`token`)\n) ENGINE=InnoDB DEFAULT \
                   CHARSET=utf8mb4";
        let new = old.replace("bigint(20)", "bigint");
        for text in [old, &new] {
            let found = definitions(text);
            for part in [
                ("name", "varbinary(512)"),
                ("token", "bigint"),
                ("PRIMARY KEY", "(name)"),
                ("UNIQUE KEY", "(name,token)"),
                ("ENGINE", "InnoDB"),
            ] {
                let part = (part.0.to_owned(), part.1.to_owned());
                assert!(found.contains(&part), "{part:?} in {found:?}");
            }
        }
    }
}
