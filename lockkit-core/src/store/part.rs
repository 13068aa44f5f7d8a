//! Steps of several requests, some of which were carried out.

use std::error::Error as _;

use crate::contract::{BackendError, Outcome};

/// The error of a request that ends holds of a lock. Once one of them was `broken`, the step has had an effect.
#[must_use]
pub fn of_break(error: BackendError, broken: bool) -> BackendError {
    if !broken {
        return error;
    }
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let why = format!("only some of the holds were ended: {cause}");
    BackendError::new(
        error.backend(),
        error.operation(),
        Outcome::Indeterminate,
        why,
    )
}
