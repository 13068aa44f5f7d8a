//! The table of the mutants made by hand: their names, and the tests that must notice each.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// A mutant, and a test that must fail while it is on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) mutant: String,
    /// The name of a test program.
    pub(super) program: String,
    /// The name of a test in it.
    pub(super) test: String,
}

/// Reads the table, and checks that it has the mutants of the patches and no others.
pub(super) fn read(dir: &Path) -> Result<Vec<Row>> {
    let text = fs::read_to_string(dir.join("table.txt")).context("the table of mutants")?;
    let rows = parse(&text)?;
    let listed: BTreeSet<_> = rows.iter().map(|row| row.mutant.clone()).collect();
    let made = made_in(dir)?;
    let missing: Vec<_> = made.difference(&listed).collect();
    ensure!(missing.is_empty(), "no test is named for {missing:?}");
    let unknown: Vec<_> = listed.difference(&made).collect();
    ensure!(unknown.is_empty(), "no patch makes {unknown:?}");
    Ok(rows)
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut mutant = "";
    let is_row = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    for line in text.lines().filter(is_row) {
        let words: Vec<_> = line.split_whitespace().collect();
        match (line.strip_prefix("    "), words.as_slice()) {
            (Some(_), [program, test]) => rows.push(Row {
                mutant: mutant.to_owned(),
                program: (*program).to_owned(),
                test: (*test).to_owned(),
            }),
            _ => {
                let named = line.split_once(": ").filter(|(name, _)| is_name(name));
                (mutant, _) = named.with_context(|| format!("unreadable: {line}"))?;
            }
        }
    }
    Ok(rows)
}

/// The mutants that the patches and the files which they include ask for.
fn made_in(dir: &Path) -> Result<BTreeSet<String>> {
    let mut made = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let text = fs::read_to_string(entry?.path())?;
        let quoted = text.split('"').filter(|text| is_name(text));
        made.extend(quoted.map(str::to_owned));
    }
    Ok(made)
}

/// Whether a text is the name of a mutant, such as `client::WindowFromReply`.
fn is_name(text: &str) -> bool {
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|it| it.is_ascii_alphabetic());
    text.split_once("::").is_some_and(|(part, name)| {
        is_word(part) && is_word(name) && name.starts_with(|it: char| it.is_ascii_uppercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::by_hand;

    #[test]
    fn table_names_mutants_and_tests() {
        let text = "# Words.\n\nzk::Blind: it sees nothing\n    faults_zk faults::sees\n    a b\n";
        let row = |program: &str, test: &str| Row {
            mutant: "zk::Blind".into(),
            program: program.into(),
            test: test.into(),
        };
        let rows = [row("faults_zk", "faults::sees"), row("a", "b")];
        assert_eq!(parse(text).unwrap(), rows);
        assert!(parse("zk::Blind\n").is_err());
        assert!(parse("zk::Blind: it sees nothing\n    faults_zk\n").is_err());
    }

    #[test]
    fn named_tests_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for row in read(&root.join(by_hand::DIR)).unwrap() {
            let programs = [
                "conformance-tests/tests",
                "lockkit-core/tests",
                "lockkit-sql/tests",
            ];
            let mut dirs: Vec<_> = programs.map(|dir| root.join(dir).join(&row.program)).into();
            if row.program == "conformance" {
                dirs.push(root.join("conformance-tests/src/cases"));
            }
            let files = dirs
                .iter()
                .filter_map(|dir| fs::read_dir(dir).ok())
                .flatten();
            let mut files = files.map(|entry| entry.unwrap().path());
            let name = row.test.rsplit("::").next().unwrap();
            let defines = |path| {
                let text = fs::read_to_string(path).unwrap_or_default();
                ["(", "<"]
                    .iter()
                    .any(|end| text.contains(&format!("fn {name}{end}")))
            };
            assert!(files.any(defines), "no test is {row:?}");
        }
    }
}
