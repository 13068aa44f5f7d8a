//! Rules for the documents at the top of the repository: whatever they name exists.

use std::collections::BTreeSet;
use std::path::Path;

use super::{File, Finding};

const MAP: &str = "ARCHITECTURE.md";

/// The heading of the column whose names are cases of the suite or tests.
const CASES: &str = "guarded by";

pub(super) fn check(root: &Path, documents: &[File], sources: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    let dirs: BTreeSet<_> = sources
        .iter()
        .filter_map(|file| Path::new(&file.path).parent())
        .collect();
    for document in documents {
        found.extend(check_paths(document, |path| {
            // A folder may be named without the crate that it lies in.
            let is_short = path.find('/') == Some(path.len() - 1);
            let mut dirs = dirs.iter();
            root.join(path).exists()
                || is_short && dirs.any(|dir| root.join(dir).join(path).is_dir())
        }));
    }
    let Some(map) = documents.iter().find(|document| document.path == MAP) else {
        found.push(Finding::fault(MAP, 1, "is missing"));
        return found;
    };
    found.extend(check_schemes(sources));
    found.extend(check_names(map, sources));
    found.extend(check_cases(map, |case| {
        sources.iter().any(|file| holds_case(file, case))
    }));
    found
}

/// The schemes of the facade stand in this list.
const SCHEMES: &str = "lockkit/src/stores.rs";
/// The tables in which users look for a store.
const TABLES: &[&str] = &["lockkit/src/lib.rs", "lockkit/src/connect.rs"];

/// Other names of schemes stand in this list.
const ALIASES: &str = "lockkit-core/src/url/parse.rs";

/// The first text in each line of a list.
fn listed<'a>(sources: &'a [File], path: &str, list: &str) -> Vec<&'a str> {
    let file = sources.iter().find(|file| file.path == path);
    let list = file.and_then(|file| file.text.split(&format!("const {list}: ")).nth(1));
    let lines = list.and_then(|list| list.split("];").next()).unwrap_or("");
    lines
        .lines()
        .filter_map(|line| quoted(line).next())
        .collect()
}

/// Every scheme that can be used stands in each table, by each of its names.
fn check_schemes(sources: &[File]) -> Vec<Finding> {
    let file = |path: &str| sources.iter().find(|file| file.path == path);
    let schemes = listed(sources, SCHEMES, "SCHEMES");
    let mut found = Vec::new();
    if schemes.is_empty() {
        found.push(Finding::fault(SCHEMES, 1, "its schemes are not found"));
    }
    let aliases = listed(sources, ALIASES, "ALIASES");
    if aliases.is_empty() {
        found.push(Finding::fault(ALIASES, 1, "its other names are not found"));
    }
    for table in TABLES.iter().filter_map(|path| file(path)) {
        let rows = table.text.lines().filter(|line| line.contains("| `"));
        let rows: Vec<_> = rows.collect();
        for scheme in schemes.iter().chain(&aliases) {
            let named = format!("`{scheme}:");
            if !rows.iter().any(|row| row.contains(&named)) {
                let what = format!("no table names the scheme `{scheme}`");
                found.push(Finding::fault(&table.path, 1, what));
            }
        }
    }
    found
}

/// The texts in double quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// Every path in backticks and every relative link leads somewhere.
fn check_paths(document: &File, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    for (i, line) in document.text.lines().enumerate() {
        let named = code_spans(line).filter(|text| is_path(text));
        for path in named.chain(links(line)) {
            if !exists(path) {
                let what = format!("`{path}` does not exist");
                found.push(Finding::fault(&document.path, i + 1, what));
            }
        }
    }
    found
}

/// What is said to be in a source file is there: "`A`, `B` in `file`".
fn check_names(map: &File, sources: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (i, line) in map.text.lines().enumerate() {
        for (at, place) in line.match_indices(" in `") {
            let path = line[at + place.len()..].split('`').next();
            let Some(file) = sources.iter().find(|file| path == Some(&*file.path)) else {
                continue;
            };
            let mut before = &line[..at];
            while let Some((rest, name)) =
                before.strip_suffix('`').and_then(|it| it.rsplit_once('`'))
            {
                if is_path(name) {
                    break;
                }
                if !file.text.contains(name.rsplit("::").next().unwrap_or(name)) {
                    let what = format!("`{name}` is not in `{}`", file.path);
                    found.push(Finding::fault(&map.path, i + 1, what));
                }
                let list = rest
                    .strip_suffix(", ")
                    .or_else(|| rest.strip_suffix(" and "));
                before = list.unwrap_or_default();
            }
        }
    }
    found
}

/// Every row of the table of invariants names at least one case, and each of them exists.
fn check_cases(map: &File, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut column = None;
    for (i, line) in map.text.lines().enumerate() {
        if !line.starts_with('|') {
            column = None;
            continue;
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let Some(column) = column else {
            column = Some(cells.iter().position(|cell| *cell == CASES));
            continue;
        };
        let Some(cell) = column.and_then(|column: usize| cells.get(column)) else {
            continue;
        };
        if cell.starts_with("--") {
            continue;
        }
        if code_spans(cell).next().is_none() {
            found.push(Finding::fault(&map.path, i + 1, "no case guards this row"));
        }
        for case in code_spans(cell).filter(|case| !exists(case)) {
            found.push(Finding::fault(
                &map.path,
                i + 1,
                format!("no case is called `{case}`"),
            ));
        }
    }
    found
}

/// Whether a file defines the test `module::function`, where its path names the module.
fn holds_case(file: &File, case: &str) -> bool {
    let mut modules: Vec<_> = case.split("::").collect();
    let function = modules.pop().unwrap_or_default();
    let is_in = |module: &str| {
        let mut parts = file.path.split('/');
        parts.any(|part| part.trim_end_matches(".rs") == module)
    };
    let defined = [format!("fn {function}("), format!("fn {function}<")];
    modules.into_iter().all(is_in) && defined.iter().any(|text| file.text.contains(text))
}

fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The targets of Markdown links that stay inside the repository, without their fragments.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
}

/// Whether a text in backticks means a file or directory of ours. Names with a placeholder in
/// angle brackets do not.
fn is_path(text: &str) -> bool {
    let endings = [".rs", ".md", ".toml", ".txt", ".lua", ".sql", ".yml"];
    let is_file = endings.iter().any(|ending| text.ends_with(ending));
    let is_dir = text.ends_with('/') || text.contains("/src/") || text.ends_with("/src");
    (is_file || is_dir) && !text.contains(['<', ' ', ':', '*', '$'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> File {
        File {
            path: MAP.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn paths_and_links_that_lead_nowhere_are_found() {
        let text = "see `core/src/hold.rs`, `core/src/gone.rs` and `<store>/src/lib.rs`\n\
                    [a](README.md#top) [b](GONE.md) [c](https://example.org/GONE.md) [d](#here)\n";
        let there = |path: &str| ["core/src/hold.rs", "README.md"].contains(&path);
        let expected = [
            Finding::fault(MAP, 1, "`core/src/gone.rs` does not exist"),
            Finding::fault(MAP, 2, "`GONE.md` does not exist"),
        ];
        assert_eq!(check_paths(&document(text), there), expected);
    }

    #[test]
    fn names_that_are_not_where_they_are_said_to_be_are_found() {
        let file = File {
            path: "core/src/hold.rs".to_owned(),
            text: "const PAUSE: u8 = 1; impl Hold { fn end() {} }".to_owned(),
        };
        let text = "`GONE` in `src/a.rs`, `PAUSE`, `Hold::end` and `LOST` in `core/src/hold.rs`, `X` in `y.rs`\n";
        let expected = [Finding::fault(
            MAP,
            1,
            "`LOST` is not in `core/src/hold.rs`",
        )];
        assert_eq!(check_names(&document(text), &[file]), expected);
    }

    #[test]
    fn a_case_is_a_function_in_a_file_of_its_module() {
        let file = File {
            path: "suite/src/cases/names.rs".to_owned(),
            text: "async fn emoji(ctx: &Ctx) {}".to_owned(),
        };
        assert!(holds_case(&file, "names::emoji") && holds_case(&file, "emoji"));
        assert!(!holds_case(&file, "tokens::emoji") && !holds_case(&file, "names::emo"));
    }

    #[test]
    fn a_scheme_that_a_table_leaves_out_is_found() {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let list = "const SCHEMES: &[(&str, Option<&str>)] = &[\n(\"zk\", Some(\"x\")),\n];\n";
        let sources = |table: &str| {
            let full = "/// | `zk://host`, `zoo://host` | a store |\n";
            [
                file(SCHEMES, list),
                file(
                    ALIASES,
                    "const ALIASES: [(&str, &str); 1] = [\n(\"zoo\", \"zk\"),\n];\n",
                ),
                file(TABLES[0], full),
                file(TABLES[1], table),
            ]
        };
        let table = "/// | `x`, `zk://h`, `zoo://h` | it |\n";
        assert_eq!(check_schemes(&sources(table)), []);
        let expected = Finding::fault(TABLES[1], 1, "no table names the scheme `zk`");
        let table = "/// | `zoo://h` | it |\n`zk://h` is a URL\n";
        assert_eq!(check_schemes(&sources(table)), [expected]);
        let expected = Finding::fault(TABLES[1], 1, "no table names the scheme `zoo`");
        assert_eq!(
            check_schemes(&sources("/// | `zk://h` | it |\n")),
            [expected]
        );
        assert_eq!(check_schemes(&[]).len(), 2);
    }

    #[test]
    fn cases_that_do_not_exist_and_rows_without_a_case_are_found() {
        let text = "| invariant | guarded by | waiver |\n|---|---|---|\n\
                    | one | `there` | `elsewhere` |\n| two | `gone` | – |\n| three | – | – |\n\
                    \n| no cases here |\n|---|\n| `gone` |\n";
        let expected = [
            Finding::fault(MAP, 4, "no case is called `gone`"),
            Finding::fault(MAP, 5, "no case guards this row"),
        ];
        assert_eq!(
            check_cases(&document(text), |case| case == "there"),
            expected
        );
    }
}
