//! Releases of a hold with work for the store.

use crate::contract::{BackendError, Error, Outcome};

/// The error of a release with work, in the words of the store; `None` if the hold had ended before and
/// the work was not done.
#[must_use]
pub fn of_commit(error: Error, backend: &'static str) -> Option<BackendError> {
    let outcome = match error {
        Error::Lost { .. } => return None,
        Error::Backend(error) => return Some(error),
        // The request may have been on its way.
        Error::Shutdown => Outcome::Indeterminate,
        _ => Outcome::Rejected,
    };
    Some(BackendError::new(
        backend,
        "commit",
        outcome,
        error.to_string(),
    ))
}
