//! The name of the table, its definition, and the check of the columns that a database has.

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

    /// Writes the names of both tables into a text.
    pub(crate) fn write(&self, text: &str, quote: char) -> String {
        text.replace("{table}", &self.quoted(quote))
            .replace("{holds}", &self.holds().quoted(quote))
            .replace("{bare}", self.name())
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

/// How a database defines the tables.
#[derive(Debug)]
pub struct Types {
    /// What precedes the definition when a client sends it.
    pub(crate) before: &'static str,
    /// The rights that an application needs, as comments.
    pub(crate) rights: &'static str,
    pub(crate) bytes: &'static str,
    pub(crate) holder: &'static str,
    pub(crate) number: &'static str,
    /// What the table of the locks has after its columns, for transactions that depend on a hold.
    pub(crate) key: &'static str,
    pub(crate) options: &'static str,
    /// What an opened table must have beside its columns, as the database shows it.
    pub(crate) parts: &'static [(&'static str, &'static str)],
}

/// The rights where there are users. Each statement names one table, as all servers understand it.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const RIGHTS: &str = "-- The rights of an application, with its user in place of app:
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO app;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {holds} TO app;
--
";

impl Types {
    /// The statements that create the tables.
    pub(crate) fn ddl(&self, table: &Table, quote: char) -> String {
        let text = include_str!("sql/table.sql")
            .replace("{rights}\n", self.rights)
            .replace("{bytes}", self.bytes)
            .replace("{holder}", self.holder)
            .replace("{number}", self.number)
            .replace("{key}", self.key)
            .replace("{options}", self.options);
        table.write(&text, quote)
    }

    /// Compares what the table of the locks must have with what was found. Returns what is wrong.
    pub(crate) fn misfit(&self, table: &Table, found: &[(String, String)]) -> Option<String> {
        if found.is_empty() {
            return Some(format!(
                "there is no table `{table}` that this user can see: `lockkit run` creates it, `lockkit schema URL` \
                 prints it, and `table=` names another"
            ));
        }
        let columns = [
            ("name", self.bytes),
            ("holder", self.holder),
            ("token", self.number),
            ("expires_at", self.number),
            ("waiting_until", self.number),
            ("session", self.number),
            ("label", self.bytes),
        ];
        let is_missing = |(name, kind): &&(&str, &str)| {
            let mut found = found.iter();
            !found.any(|column| column.0 == *name && column.1.eq_ignore_ascii_case(kind))
        };
        let missing: Vec<String> = columns
            .iter()
            .chain(self.parts)
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
