//! One word for the outcome of a call, as spans and metrics show it.

use crate::contract::error::{BackendError, Outcome};
use crate::contract::{Attempt, Release, Renewal, Wake};

/// The caller dropped the call before it was answered, as the client does at its time limit.
pub(super) const CANCELLED: &str = "cancelled";

pub(super) const fn of_error(error: &BackendError) -> &'static str {
    match error.outcome() {
        Outcome::Rejected => "rejected",
        Outcome::Unavailable => "unavailable",
        Outcome::Indeterminate => "indeterminate",
    }
}

pub(super) fn of_attempt(answer: &Result<Attempt, BackendError>) -> &'static str {
    match answer {
        Ok(Attempt::Granted(_)) => "granted",
        Ok(Attempt::Held { .. }) => "held",
        Err(error) => of_error(error),
    }
}

pub(super) fn of_release(answer: &Result<Release, BackendError>) -> &'static str {
    match answer {
        Ok(Release::Released) => "released",
        Ok(Release::NotHeld) => "not_held",
        Err(error) => of_error(error),
    }
}

pub(super) fn of_renewal(answer: &Result<Renewal, BackendError>) -> &'static str {
    match answer {
        Ok(Renewal::Renewed { .. }) => "renewed",
        Ok(Renewal::NotHeld) => "not_held",
        Err(error) => of_error(error),
    }
}

/// The first that was not renewed speaks for the batch.
pub(super) fn of_renewals(answers: &[Result<Renewal, BackendError>]) -> &'static str {
    let mut words = answers.iter().map(of_renewal);
    words.find(|&word| word != "renewed").unwrap_or("renewed")
}

pub(super) fn of_wake(answer: &Result<Wake, BackendError>) -> &'static str {
    match answer {
        Ok(Wake::Retry) => "retry",
        Ok(Wake::Granted(_)) => "granted",
        Ok(Wake::Lost(_)) => "lost",
        Err(error) => of_error(error),
    }
}

pub(super) fn of_other<T>(answer: &Result<T, BackendError>) -> &'static str {
    match answer {
        Ok(_) => "ok",
        Err(error) => of_error(error),
    }
}
