//! What is done about the table when a store is opened, and whether the one that is there fits.

use crate::table::Table;

/// What is done about the table when a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schema {
    /// It is made if it is not there, and refused if it does not fit.
    Create,
    /// It must be there and fit: for users who may not make tables.
    Check,
}

/// Reads a file of definitions, comments and all.
pub(crate) fn definition(file: &str, table: &Table, quote: char) -> String {
    file.replace("{table}", &table.quoted(quote))
        .replace("{bare}", table.name())
}

/// Compares columns and their types; answers in words what does not fit.
pub(crate) fn misfit(
    table: &Table,
    expected: &[(&str, &str)],
    found: &[(String, String)],
) -> Option<String> {
    let wrong = |column: &&(&str, &str)| {
        let there = found.iter().find(|(name, _)| name == column.0);
        !there.is_some_and(|(_, kind)| kind.eq_ignore_ascii_case(column.1))
    };
    let wrong: Vec<String> = expected
        .iter()
        .filter(wrong)
        .map(|(name, kind)| format!("`{name} {kind}`"))
        .collect();
    (!wrong.is_empty()).then(|| {
        let missing = wrong.join(", ");
        format!(
            "the table `{table}` is not one of lockkit, or of another version: it has no {missing}; \
             `lockkit schema URL` prints the right one, and `table=` names another"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let table = Table::default();
        let found = |columns: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = |(name, kind): &(&str, &str)| ((*name).to_owned(), (*kind).to_owned());
            columns.iter().map(owned).collect()
        };
        let expected = [("name", "BLOB"), ("token", "INTEGER")];
        let more = [("token", "integer"), ("note", "TEXT"), ("name", "BLOB")];
        assert_eq!(misfit(&table, &expected, &found(&more)), None);
        let text = misfit(&table, &expected, &found(&[("name", "TEXT")])).unwrap();
        assert!(text.contains("`name BLOB`, `token INTEGER`"), "{text}");
    }
}
