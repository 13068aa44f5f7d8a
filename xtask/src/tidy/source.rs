//! Rules for source files and manifests.

use super::{File, Finding};

const LONG: usize = 300;
const TOO_LONG: usize = 420;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &[
    "common", "helper", "helpers", "manager", "misc", "types", "util", "utils",
];

/// What must not stand in a line of code, and what to do instead. The words are split, so that
/// this file obeys its own rule.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("#[al", "low("), "use #[expect(.., reason = ..)]"),
    (concat!("#![al", "low("), "use #![expect(.., reason = ..)]"),
    (concat!("TO", "DO"), "do it, or open an issue"),
    (concat!("FIX", "ME"), "fix it, or open an issue"),
    (
        concat!("unimple", "mented!("),
        "leave out what is not there yet",
    ),
    (concat!("uns", "afe {"), "there is a safe crate for it"),
    (concat!("uns", "afe fn"), "there is a safe crate for it"),
    (concat!("uns", "afe impl"), "there is a safe crate for it"),
];

/// State of the whole process: two clients, or two versions of a library, would meet in it. INV-12.
const GLOBAL_STATE: &[&str] = &["thread_local!", "LazyLock", "lazy_static!", "static mut"];

/// The crates that other programs are built on.
const LIBRARIES: &[&str] = &["lockkit-core/src/", "lockkit/src/"];

const INVARIANTS: u32 = 22;

pub(super) fn check(file: &File) -> Vec<Finding> {
    let mut found = check_name(&file.path);
    found.extend(check_first_line(file));
    found.extend(check_length(file));
    for (i, line) in file.text.lines().enumerate() {
        let fault = |what: String| Finding::fault(&file.path, i + 1, what);
        for (word, instead) in FORBIDDEN {
            if line.contains(word) {
                found.push(fault(format!("`{word}`: {instead}")));
            }
        }
        for word in GLOBAL_STATE.iter().filter(|word| line.contains(**word)) {
            if LIBRARIES
                .iter()
                .any(|library| file.path.starts_with(library))
            {
                found.push(fault(format!("`{word}`: a library has no global state")));
            }
        }
        for number in invariants_named(line) {
            if !(1..=INVARIANTS).contains(&number) {
                found.push(fault(format!("there is no invariant {number}")));
            }
        }
    }
    found
}

/// A crate that does not take the lints of the workspace is checked by none of them.
pub(super) fn check_manifest(file: &File) -> Vec<Finding> {
    let wanted = "[lints]\nworkspace = true";
    if file.text.contains(wanted) {
        return Vec::new();
    }
    vec![Finding::fault(
        &file.path,
        1,
        "it does not say `[lints] workspace = true`",
    )]
}

fn check_name(path: &str) -> Vec<Finding> {
    let parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
    let bad = parts.filter(|part| EMPTY_NAMES.contains(part));
    bad.map(|name| {
        Finding::fault(
            path,
            1,
            format!("`{name}` names no room: say what is in it"),
        )
    })
    .collect()
}

/// The first line of a file says what is in it: nothing else lists the files.
fn check_first_line(file: &File) -> Option<Finding> {
    let documented = ["//! ", "#![doc = include_str!("];
    if documented.iter().any(|start| file.text.starts_with(start)) {
        return None;
    }
    let what = "the first line does not say with `//!` what is in the file";
    Some(Finding::fault(&file.path, 1, what))
}

fn check_length(file: &File) -> Option<Finding> {
    let lines = lines_without_tests(&file.text);
    let path = &file.path;
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    if lines > TOO_LONG && !is_test {
        let what = format!("{lines} lines without tests, at most {TOO_LONG}: split it");
        Some(Finding::fault(path, 1, what))
    } else if lines > LONG {
        Some(Finding::Note(format!("{path} has {lines} lines")))
    } else {
        None
    }
}

/// The lines before the module of unit tests, which stands last in a file.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|two| two[0] == "#[cfg(test)]" && two[1].starts_with("mod "));
    tests.unwrap_or(lines.len())
}

fn invariants_named(line: &str) -> impl Iterator<Item = u32> {
    line.split("INV-").skip(1).filter_map(|rest| {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..digits].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        let file = File {
            path: path.to_owned(),
            text: format!("//! What it is.\n{text}"),
        };
        check(&file).len()
    }

    #[test]
    fn each_forbidden_word_is_found() {
        for (word, _) in FORBIDDEN {
            assert_eq!(
                faults("a/src/lib.rs", &format!("fn f() {{}}\n  {word}\n")),
                1,
                "{word}"
            );
        }
        assert_eq!(faults("a/src/lib.rs", "fn f() {}\n"), 0);
    }

    #[test]
    fn the_first_line_of_a_file_says_what_is_in_it() {
        let file = |text: &str| File {
            path: "a/src/lib.rs".to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(check(&file("//! A lock.\n")), []);
        assert_eq!(check(&file("#![doc = include_str!(\"a.md\")]\n")), []);
        assert_eq!(check(&file("use std::fs;\n//! A lock.\n")).len(), 1);
    }

    #[test]
    fn libraries_have_no_global_state() {
        for word in GLOBAL_STATE {
            assert_eq!(
                faults("lockkit/src/lib.rs", &format!("{word} X\n")),
                1,
                "{word}"
            );
            assert_eq!(faults("lockkit-cli/src/main.rs", &format!("{word} X\n")), 0);
        }
    }

    #[test]
    fn names_that_say_nothing_are_refused() {
        assert_eq!(faults("a/src/utils.rs", ""), 1);
        assert_eq!(faults("a/tests/common/mod.rs", ""), 1);
        assert_eq!(faults("a/src/waiter.rs", ""), 0);
    }

    #[test]
    fn long_files_are_noted_and_too_long_ones_refused() {
        let file = |lines: usize, tests: usize| File {
            path: "a/src/lib.rs".to_owned(),
            text: "x\n".repeat(lines) + "#[cfg(test)]\nmod tests {\n" + &"y\n".repeat(tests),
        };
        assert_eq!(check_length(&file(LONG, TOO_LONG)), None);
        assert!(matches!(
            check_length(&file(LONG + 1, 0)),
            Some(Finding::Note(_))
        ));
        let mut long = file(TOO_LONG + 1, 0);
        assert!(matches!(check_length(&long), Some(Finding::Fault { .. })));
        "a/src/memory/tests.rs".clone_into(&mut long.path);
        assert!(matches!(check_length(&long), Some(Finding::Note(_))));
    }

    #[test]
    fn invariants_have_numbers_from_1_to_22() {
        assert_eq!(faults("a/src/lib.rs", "// INV-1 INV-22.\n"), 0);
        let unknown = format!("// {}23\n", "INV-");
        assert_eq!(faults("a/src/lib.rs", &unknown), 1);
    }

    #[test]
    fn a_crate_takes_the_lints_of_the_workspace() {
        let manifest = |text: &str| File {
            path: "a/Cargo.toml".to_owned(),
            text: text.to_owned(),
        };
        assert!(check_manifest(&manifest("[lints]\nworkspace = true\n")).is_empty());
        assert_eq!(check_manifest(&manifest("[package]\n")).len(), 1);
    }
}
