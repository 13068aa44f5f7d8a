//! Which server it is, and those that cannot keep locks.

use lockkit_core::{BackendError, Outcome};

use super::error::ERRORS;
use super::message::{self, Answer};
use crate::error::Problem;

/// Asks for what [`read`] needs. The comment is a part of the statement on MariaDB alone.
pub(super) const QUESTION: &str = "SELECT VERSION(), 1 /*M!100600 + 1 */; \
     SHOW VARIABLES WHERE Variable_name IN \
     ('wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode');";

/// Whether it is MariaDB.
///
/// # Errors
/// Where several servers take writes at once, or rows are not locked as `InnoDB` does.
pub(super) fn read(answers: &[Answer]) -> Result<bool, BackendError> {
    let mut rows = answers.iter().flat_map(|answer| &answer.rows);
    let first = rows.next().ok_or_else(|| ERRORS.unreadable("open"))?;
    let version = message::text(first, 0).unwrap_or_default();
    let variables: Vec<(String, String)> = rows
        .filter_map(|row| Some((message::text(row, 0)?, message::text(row, 1)?)))
        .collect();
    match refusal(&version, &variables) {
        None => Ok(message::number(first, 1) == Some(2)),
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
