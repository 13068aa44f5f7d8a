//! The outcome of a call in one word, as spans and metrics show it.

use async_trait::async_trait;

use crate::contract::{Attempt, BackendError, LockState, Outcome, Release, Renewal, Wake, Watch};

/// What a call returns.
pub(super) trait Answer {
    /// Its outcome.
    fn word(&self) -> &'static str {
        "ok"
    }
}

impl<T: Answer> Answer for Result<T, BackendError> {
    fn word(&self) -> &'static str {
        match self.as_ref().map_err(BackendError::outcome) {
            Ok(answer) => answer.word(),
            Err(Outcome::Rejected) => "rejected",
            Err(Outcome::Unavailable) => "unavailable",
            Err(Outcome::Indeterminate) => "indeterminate",
        }
    }
}

impl Answer for Attempt {
    fn word(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Held { .. } => "held",
        }
    }
}

impl Answer for Release {
    fn word(&self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::NotHeld => "not_held",
        }
    }
}

impl Answer for Renewal {
    fn word(&self) -> &'static str {
        match self {
            Self::Renewed { .. } => "renewed",
            Self::NotHeld => "not_held",
            Self::SessionEnded => "session_ended",
        }
    }
}

/// The first that was not renewed speaks for the batch.
impl Answer for Vec<Result<Renewal, BackendError>> {
    fn word(&self) -> &'static str {
        let mut words = self.iter().map(Answer::word);
        words.find(|&word| word != "renewed").unwrap_or("renewed")
    }
}

impl Answer for Wake {
    fn word(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Granted(_) => "granted",
            Self::Lost(_) => "lost",
        }
    }
}

/// Whether the ticket holds.
impl Answer for bool {
    fn word(&self) -> &'static str {
        if *self { "ok" } else { "not_held" }
    }
}

impl Answer for Box<dyn Watch> {}
impl Answer for Option<LockState> {}
impl Answer for Vec<LockState> {}

/// Runs `call` and then reports its outcome, also if the caller drops it, as the client does at its time
/// limit.
pub(super) async fn observe<T: Answer>(
    call: impl Future<Output = T> + Send,
    report: impl Fn(&'static str) + Send,
) -> T {
    let mut observed = Observed {
        outcome: "cancelled",
        report,
    };
    let answer = call.await;
    observed.outcome = answer.word();
    answer
}

struct Observed<F: Fn(&'static str)> {
    outcome: &'static str,
    report: F,
}

impl<F: Fn(&'static str)> Drop for Observed<F> {
    fn drop(&mut self) {
        (self.report)(self.outcome);
    }
}

/// Reports each wake-up.
pub(super) struct ObservedWatch<F> {
    pub(super) inner: Box<dyn Watch>,
    pub(super) report: F,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<F: Fn(&'static str) + Send> Watch for ObservedWatch<F> {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        let wake = self.inner.changed().await;
        (self.report)(wake.word());
        wake
    }
}
