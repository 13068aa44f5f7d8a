//! Errors, by what the caller should do about them.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::name::{InvalidName, LockName};
use crate::contract::state::{LockState, Plain};
use crate::contract::token::FencingToken;
use crate::url::InvalidUrl;

/// The result of most calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says why a call failed; each variant says what to do.
///
/// A lock that is busy in [`try_acquire`](crate::Lock::try_acquire) is `Ok(None)` and not an error.
/// No message holds a password or a whole URL. INV-14.
///
/// Each message is one line and names its causes, so that `{error}` is enough for a log. `source()` leads
/// to the [`BackendError`] and its causes for programs that look at them; a program that also prints
/// the chain prints them twice.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The wait limit passed while others held the lock. Try later.
    #[error("lock `{}` was still {} after {waited:.1?}", Plain(.name.as_str()), held(.state.as_deref()))]
    Timeout {
        /// The lock.
        name: LockName,
        /// How long the caller waited.
        waited: Duration,
        /// The lock when the time was up, if the store could still say who held it.
        state: Option<Arc<LockState>>,
    },
    /// The hold ended without a release. Stop writing.
    #[error("lock `{}` (token {token}) was lost: {reason}{}", Plain(.name.as_str()), last_failure(.source.as_ref()))]
    Lost {
        /// The lock.
        name: LockName,
        /// The token of the hold that ended.
        token: FencingToken,
        /// Why.
        reason: LossReason,
        /// Why the last renewal failed, if that is how the lease ended.
        source: Option<BackendError>,
    },
    /// The store cannot do this. Change the option or the store.
    #[error("{}", Plain(.what))]
    Unsupported {
        /// What it cannot do, and what it can.
        what: String,
    },
    /// An option or a call that no store could honour. Change it.
    #[error("{}", Plain(.what))]
    InvalidOption {
        /// What is wrong, and what to write.
        what: String,
    },
    /// The text cannot name a lock. Change it.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The URL does not lead to a store. Change it, or enable the feature that it names.
    #[error(transparent)]
    InvalidUrl(#[from] InvalidUrl),
    /// The [`Owner`](crate::Owner) belongs to another client. Make one with this client.
    #[error("the owner belongs to another client: make it with the client whose lock it re-enters")]
    ForeignOwner,
    /// The store failed. Look at the cause, and at [`BackendError::outcome`].
    #[error("{}", .0.with_causes())]
    Backend(#[source] BackendError),
    /// The client was shut down, or the runtime that it was made in has stopped.
    #[error("the lock client is shut down")]
    Shutdown,
    /// The client was made or used outside a Tokio runtime, or in one whose time is not enabled.
    #[error("a lock client needs a Tokio runtime with time enabled: make and use it inside one")]
    NoRuntime,
}

impl Error {
    /// The store has said that the hold is gone.
    pub(crate) fn superseded(name: &LockName, token: FencingToken) -> Self {
        Self::Lost {
            name: name.clone(),
            token,
            reason: LossReason::Superseded,
            source: None,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        let what = what.into();
        Self::InvalidOption { what }
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

fn held(state: Option<&LockState>) -> String {
    state.map_or_else(|| "held by others".to_owned(), |state| format!("{state},"))
}

/// The end of a message about a loss.
pub(crate) fn last_failure(failure: Option<&BackendError>) -> String {
    failure.map_or_else(String::new, |error| {
        format!("; the last renewal failed: {}", error.with_causes())
    })
}

/// Says why a hold ended without a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ran out before a renewal was confirmed, or a fixed lease ended.
    #[error("its lease ended before a renewal was confirmed")]
    Expired,
    /// The store no longer lists the hold: it expired there, or was broken or deleted.
    #[error("the store no longer lists this hold")]
    Superseded,
    /// The session that carried the hold has ended.
    #[error("the session that carried it ended")]
    SessionEnded,
    /// The hold reached the limit set with [`with_max_hold`](crate::Lock::with_max_hold).
    #[error("it reached its longest hold time")]
    MaxHold,
    /// The client was shut down.
    #[error("its client was shut down")]
    Shutdown,
}

/// Says what is known about the effect of a request that failed. It decides what the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// No effect, and it will not work by itself: bad argument, no permission, wrong type.
    Rejected,
    /// No effect, and it may work later: refused connection, a server that loads or is read-only.
    Unavailable,
    /// It may have been carried out: the reply was lost or late.
    Indeterminate,
}

impl Outcome {
    /// The outcome of a request that certainly had no effect.
    pub(crate) const fn without_effect(self) -> Self {
        match self {
            Self::Indeterminate => Self::Unavailable,
            known => known,
        }
    }

    fn of_operation(self, operation: &str) -> Self {
        match READING.contains(&operation) {
            true => self.without_effect(),
            false => self,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected => "it had no effect and will not work by itself",
            Self::Unavailable => "it had no effect and may work later",
            Self::Indeterminate => "it may have been carried out",
        })
    }
}

/// Operations that only read, and so have no effect in any case.
const READING: [&str; 5] = ["connect", "inspect", "list", "read", "watch"];

/// A request to a store that failed.
///
/// Its message is its own level, `attempt of the redis store failed`; `source()` leads to the causes.
/// The message of [`Error::Backend`] has them all.
///
/// Cloning counts a reference: one error may be the result of many tickets.
#[derive(Clone, Debug)]
pub struct BackendError {
    backend: &'static str,
    operation: &'static str,
    outcome: Outcome,
    source: Arc<dyn StdError + Send + Sync>,
}

impl BackendError {
    /// The same failure with another effect. For authors of stores.
    #[doc(hidden)]
    #[must_use]
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        let outcome = outcome.of_operation(self.operation);
        Self { outcome, ..self }
    }

    /// The same failure of a request that certainly had no effect, with a response or without. For authors
    /// of stores.
    #[doc(hidden)]
    #[must_use]
    pub fn without_effect(self) -> Self {
        let outcome = self.outcome.without_effect();
        Self { outcome, ..self }
    }

    /// Describes a failed `operation` of `backend`; `source` may be a text. An operation that only reads, such
    /// as `inspect`, had no effect: for it, [`Outcome::Indeterminate`] becomes [`Outcome::Unavailable`].
    pub fn new(
        backend: &'static str,
        operation: &'static str,
        outcome: Outcome,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            backend,
            operation,
            outcome: outcome.of_operation(operation),
            source: Arc::from(source.into()),
        }
    }

    /// A request to which the server at `address` did not respond within `limit`.
    #[must_use]
    pub fn timeout(
        backend: &'static str,
        operation: &'static str,
        limit: Duration,
        address: Option<&str>,
    ) -> Self {
        let place = address.map_or_else(String::new, |address| format!(" ({address})"));
        let part = Duration::from_nanos(u64::from(limit.subsec_nanos() % 1_000_000));
        let limit = limit.saturating_sub(part);
        let why = format!("no answer within {limit:?}{place}");
        Self::new(backend, operation, Outcome::Indeterminate, why)
    }

    /// A ticket was released before, so that its late request makes no hold. For authors of stores.
    #[doc(hidden)]
    #[must_use]
    pub fn released(backend: &'static str, operation: &'static str) -> Self {
        let why = "the ticket was released before";
        Self::new(backend, operation, Outcome::Rejected, why)
    }

    /// The message and those of all causes, in one line.
    pub(crate) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            let message = cause.to_string();
            // A driver's error may repeat its own source.
            if !text.ends_with(&message) {
                text.push_str(": ");
                text.push_str(&message);
            }
            next = cause.source();
        }
        Plain(&text).to_string()
    }

    /// The store's name, as [`DistributedLock::backend`](crate::contract::DistributedLock::backend) gives it.
    #[must_use]
    pub const fn backend(&self) -> &'static str {
        self.backend
    }

    /// What was asked: `attempt`, `renew`, `release` and so on.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// What is known about the effect.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the {} store failed", self.operation, self.backend)
    }
}

impl StdError for BackendError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}
