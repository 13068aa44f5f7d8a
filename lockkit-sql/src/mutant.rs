//! Promises broken on purpose, so that the suite can be tested, and requests that fail.

use std::sync::{Arc, Mutex};

use lockkit_core::store::lock;
use lockkit_core::{BackendError, Outcome};

use crate::error::{Errors, Problem};

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlFailure {
    /// The server refuses it.
    Refused,
    /// The server cannot carry it out now.
    Unavailable,
    /// It is lost on its way there.
    RequestLost,
    /// It is carried out, and the reply is lost.
    ReplyLost,
}

/// Makes one request of a store fail. A clone is the same.
#[derive(Clone, Debug, Default)]
pub struct SqlFaults(Arc<Mutex<Option<(u32, SqlFailure)>>>);

impl SqlFaults {
    /// The request after `passed` others fails so.
    pub fn fail_after(&self, passed: u32, failure: SqlFailure) {
        *lock(&self.0) = Some((passed, failure));
    }

    /// Ends an order to fail; answers whether it was still to be carried out.
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

    /// Carries out a request, or fails it.
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

/// Names a promise that the store breaks: a fault that a real store has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlMutant {
    /// A release ends the hold of any holder of its name.
    ReleaseWithoutOwnerCheck,
    /// A renewal that finds the lease ended sets it anew.
    RenewalRecreates,
    /// A renewal that asks for less makes a lease shorter.
    RenewalShortens,
    /// A renewal waits for a row that somebody has locked.
    RenewalWaits,
    /// The token is a bare counter.
    BareCounter,
    /// A new hold has the token of the hold before it.
    TokenOfLastHolderRepeated,
    /// The repeated attempt of a holder gives it a new token.
    TokenRaisedOnRepeat,
    /// A release tells nobody.
    WakeUpLost,
    /// The lease of a held lock is not looked at.
    LeaseNeverEnds,
    /// A prefix is read as a pattern.
    PrefixIsPattern,
}

impl SqlMutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ReleaseWithoutOwnerCheck,
        Self::RenewalRecreates,
        Self::RenewalShortens,
        Self::RenewalWaits,
        Self::BareCounter,
        Self::TokenOfLastHolderRepeated,
        Self::TokenRaisedOnRepeat,
        Self::WakeUpLost,
        Self::LeaseNeverEnds,
        Self::PrefixIsPattern,
    ];
}
