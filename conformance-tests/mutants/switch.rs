//! The switch of the mutants, which only the patched copy of `cargo x mutants` has: the environment
//! variable `LOCKKIT_MUTANT` names the mutant that is on in a process.

use std::env;
use std::sync::LazyLock;

static ON: LazyLock<Option<String>> = LazyLock::new(|| env::var("LOCKKIT_MUTANT").ok());

/// Whether the mutant of this name is on.
pub fn broken(name: &str) -> bool {
    ON.as_deref() == Some(name)
}

/// Makes the changes of the mutant that is on. Each has the name of its mutant, the text to replace, and
/// what to write in its place.
pub fn change(text: &str, changes: &[(&str, &str, &str)]) -> String {
    let changes = changes.iter().filter(|(name, ..)| broken(name));
    changes.fold(text.to_owned(), |text, (_, from, to)| {
        text.replace(from, to)
    })
}
