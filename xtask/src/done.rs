//! How a step ended.

/// How a step ended, unless with an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Passed,
    Failed,
    /// It could not run, and why. Shown again at the end.
    Skipped(String),
}
