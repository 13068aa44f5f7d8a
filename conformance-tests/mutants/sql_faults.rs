//! Requests to a database that fail on purpose.

use std::sync::{Arc, Mutex};

use lockkit_core::store::lock;
use lockkit_core::{BackendError, Outcome};

use crate::error::{Errors, Problem};

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlFailure {
    /// The server refuses it.
    Refused,
    /// The server cannot execute it now.
    Unavailable,
    /// It is lost on its way there.
    RequestLost,
    /// It is executed, and the reply is lost.
    ReplyLost,
}

/// Makes one request of a store fail. A clone is the same.
#[derive(Clone, Debug, Default)]
pub struct SqlFaults(Arc<Mutex<Option<(u32, SqlFailure)>>>);

impl SqlFaults {
    /// Makes the request after `passed` others fail.
    pub fn fail_after(&self, passed: u32, failure: SqlFailure) {
        *lock(&self.0) = Some((passed, failure));
    }

    /// Cancels a failure that was ordered. Returns whether it was still to come.
    #[must_use]
    pub fn take(&self) -> bool {
        let mut order = lock(&self.0);
        order.take().is_some()
    }

    fn next(&self) -> Option<SqlFailure> {
        let mut order = lock(&self.0);
        match &mut *order {
            Some((0, failure)) => {
                let failure = *failure;
                *order = None;
                Some(failure)
            }
            Some((passed, _)) => {
                *passed -= 1;
                None
            }
            None => None,
        }
    }

    /// Sends a request, or makes it fail.
    pub(crate) async fn pass<T>(
        &self,
        errors: Errors,
        operation: &'static str,
        request: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let (problem, outcome) = match self.next() {
            None => return request.await,
            Some(SqlFailure::Refused) => (Problem::Refused, Outcome::Rejected),
            Some(SqlFailure::Unavailable) => (Problem::Busy, Outcome::Unavailable),
            Some(SqlFailure::RequestLost) => (Problem::Connection, Outcome::Indeterminate),
            Some(SqlFailure::ReplyLost) => {
                request.await?;
                (Problem::Connection, Outcome::Indeterminate)
            }
        };
        Err(errors.fault(operation, problem, outcome, "failed on purpose"))
    }
}
