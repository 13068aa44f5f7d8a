//! The name of the table, and the check of the columns that a database has.

use std::fmt;
use std::str::FromStr;

use lockkit_core::LockName;

/// The longest part of a name. PostgreSQL cuts identifiers off after 63 bytes, and the names of the index and
/// of the channel contain the table's.
const LONGEST: usize = 40;

/// The name of the table that keeps the locks: `lockkit_locks`, or with a schema `app.locks`.
///
/// A name cannot travel as a value, so that only plain identifiers are allowed.
///
/// # Examples
/// ```
/// use lockkit_sql::Table;
///
/// let table: Table = "app.locks".parse().unwrap();
/// assert_eq!(table.to_string(), "app.locks");
/// assert!("locks; DROP TABLE stock".parse::<Table>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    schema: Option<String>,
    name: String,
}

/// Why a text cannot name the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write lowercase letters, digits and `_`, at most {LONGEST} of them and no digit first, as `locks`, or with a schema `app.locks`"
)]
#[non_exhaustive]
pub struct InvalidTable;

impl Table {
    /// The schema, if one is given; a database for MySQL and MariaDB.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The name without the schema.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same table in the schema in which the server has found it.
    #[cfg(feature = "postgres")]
    pub(crate) fn within(&self, schema: String) -> Self {
        Self {
            schema: Some(schema),
            name: self.name.clone(),
        }
    }

    /// The second table, beside this one.
    pub(crate) fn holds(&self) -> Self {
        Self {
            schema: self.schema.clone(),
            name: format!("{}_holds", self.name),
        }
    }

    /// The name with its schema, each in quotes of `quote`.
    pub(crate) fn quoted(&self, quote: char) -> String {
        let name = format!("{quote}{}{quote}", self.name);
        match &self.schema {
            Some(schema) => {
                let schema = schema.replace(quote, &format!("{quote}{quote}"));
                format!("{quote}{schema}{quote}.{name}")
            }
            None => name,
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        Self {
            schema: None,
            name: "lockkit_locks".to_owned(),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        f.write_str(&self.name)
    }
}

impl FromStr for Table {
    type Err = InvalidTable;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        if !is_identifier(name) || !schema.is_none_or(is_identifier) {
            return Err(InvalidTable);
        }
        Ok(Self {
            schema: schema.map(str::to_owned),
            name: name.to_owned(),
        })
    }
}

/// Only lowercase: databases disagree on whether `Locks` and `locks` are one table.
fn is_identifier(text: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let rest = |byte: u8| first(byte) || byte.is_ascii_digit();
    text.len() <= LONGEST && text.bytes().next().is_some_and(first) && text.bytes().all(rest)
}

/// Which locks to list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    /// One.
    Name(&'a LockName),
    /// Those whose names begin with this.
    Prefix(&'a str),
}

/// Compares columns and their types. Returns what is wrong.
pub(crate) fn misfit(
    table: &Table,
    expected: &[(&str, &str)],
    found: &[(String, String)],
) -> Option<String> {
    let is_missing = |(name, kind): &&(&str, &str)| {
        let mut found = found.iter();
        !found.any(|column| column.0 == *name && column.1.eq_ignore_ascii_case(kind))
    };
    let missing: Vec<String> = expected
        .iter()
        .filter(is_missing)
        .map(|(name, kind)| format!("`{name} {kind}`"))
        .collect();
    (!missing.is_empty()).then(|| {
        let missing = missing.join(", ");
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
    fn misfit_names_missing_columns() {
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

    #[test]
    fn splits_plain_names() {
        let table: Table = "app.locks_2".parse().unwrap();
        assert_eq!((table.schema(), table.name()), (Some("app"), "locks_2"));
        assert_eq!(table.quoted('"'), r#""app"."locks_2""#);
        assert_eq!(Table::default().quoted('`'), "`lockkit_locks`");
    }

    #[test]
    fn refuses_what_could_end_an_identifier() {
        let long = "x".repeat(LONGEST + 1);
        for text in [
            "", ".", "a.", ".b", "a.b.c", "1a", "Locks", "a b", "a;b", "a\"b", "a`b", "a'b", "a--",
            "a/*", "ä", "a\0", "a-b", &long,
        ] {
            assert_eq!(text.parse::<Table>(), Err(InvalidTable), "{text:?}");
        }
    }
}
