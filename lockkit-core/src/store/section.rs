//! What the sections of stores have in common.

use std::sync::Mutex;

use crate::client::{Guard, Lock};
use crate::contract::{
    BackendError, DistributedLock, Error, FencingToken, Outcome, Result, Ticket, Work,
};
use crate::store::sync::lock;

/// The reason why guarded work was not done.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FencedError {
    /// The hold has ended: nothing was done. Stop writing.
    #[error("the hold has ended: nothing was done")]
    Fenced,
    /// The server failed or refused the request. The message names its causes, as that of [`Error::Backend`].
    #[error("{}", .0.with_causes())]
    Backend(#[from] BackendError),
}

impl FencedError {
    /// The error of entering a section whose reads failed.
    #[must_use]
    pub fn on_entry(self, guard: &Guard) -> Error {
        match self {
            Self::Fenced => Error::superseded(guard.name(), guard.token()),
            Self::Backend(error) => error.into(),
        }
    }
}

/// The work of a ticket, with what came back from the step that did it.
#[derive(Debug)]
pub struct Exchange<W, R> {
    /// What is to be done.
    pub request: W,
    reply: Mutex<Option<R>>,
}

impl<W, R> Exchange<W, R> {
    /// Work that was not done yet.
    #[must_use]
    pub const fn new(request: W) -> Self {
        let reply = Mutex::new(None);
        Self { request, reply }
    }

    /// Keeps what came back last.
    pub fn keep(&self, reply: R) {
        *lock(&self.reply) = Some(reply);
    }

    /// What came back last; `None` if nothing did.
    pub fn take(&self) -> Option<R> {
        lock(&self.reply).take()
    }
}

impl<W, R> Exchange<W, (FencingToken, R)> {
    /// What came with the grant of this token; `None` if nothing did.
    pub fn take_of(&self, token: FencingToken) -> Option<R> {
        let kept = lock(&self.reply).take_if(|kept| kept.0 == token)?;
        Some(kept.1)
    }
}

impl<W: Send + Sync + 'static, R: Send + 'static> Exchange<W, R> {
    /// The work of this ticket, if it is of this kind.
    #[must_use]
    pub fn of(ticket: &Ticket) -> Option<&Self> {
        ticket.work.as_ref().and_then(Work::get)
    }
}

/// The store of a lock, for a section that needs one of this kind.
///
/// # Errors
/// - [`Error::Unsupported`] if it is another one.
pub fn store_of<'a, S: DistributedLock + 'static>(lock: &'a Lock, kind: &str) -> Result<&'a S> {
    let store = lock.backend();
    store.as_any().downcast_ref().ok_or_else(|| {
        let other = store.backend();
        let what =
            format!("a section of this kind needs a lock in {kind}, and not in the {other} store");
        Error::Unsupported { what }
    })
}

/// What came of a release with work: the reply, also where a later request has failed.
///
/// # Errors
/// - [`FencedError::Fenced`] if the hold had ended before and the work was not done.
/// - [`FencedError::Backend`] that of the store or of the client.
pub fn committed<T>(
    reply: Option<T>,
    ended: Result<()>,
    backend: &'static str,
) -> Result<T, FencedError> {
    match (reply, ended) {
        (Some(reply), _) => Ok(reply),
        (None, Err(error)) => Err(of_commit(error, backend)),
        (None, Ok(())) => {
            let why = "the reply of the server cannot be read";
            Err(BackendError::new(backend, "commit", Outcome::Indeterminate, why).into())
        }
    }
}

/// The error of a release with work, in the words of the store.
fn of_commit(error: Error, backend: &'static str) -> FencedError {
    let outcome = match error {
        Error::Lost { .. } => return FencedError::Fenced,
        Error::Backend(error) => return error.into(),
        // The request may have been on its way.
        Error::Shutdown => Outcome::Indeterminate,
        _ => Outcome::Rejected,
    };
    BackendError::new(backend, "commit", outcome, error.to_string()).into()
}
