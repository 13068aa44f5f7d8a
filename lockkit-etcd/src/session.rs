//! A session: the handle of a lease that many tickets share. The task of `keep_alive.rs` keeps it alive.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::{Clock, Moment};
use lockkit_core::{BackendError, Outcome};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::error::fault;
use crate::lease::Lease;
use crate::link::Link;

/// A new key asks for a keep-alive when the last one is older than `ttl / YOUNG`, so that grants last.
const YOUNG: u32 = 6;
/// A session that was last confirmed longer than `ttl / OLD` ago is confirmed before it is used again.
const OLD: u32 = 2;

/// The longest time between the end of the keys of a lease and that of the lease.
const KEYS_BEFORE_LEASE: Duration = Duration::from_millis(20);

/// A request for a keep-alive, and where its result goes.
pub(crate) type Request = oneshot::Sender<Result<(), BackendError>>;

/// A lease and its tickets. Its task ends when the last reference is dropped, and revokes the lease.
#[derive(Debug)]
pub(crate) struct Session {
    lease: Arc<Lease>,
    requests: mpsc::UnboundedSender<Request>,
    link: Arc<Link>,
}

impl Deref for Session {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Session {
    /// Creates a lease. Its task gets the other two values.
    pub(crate) async fn create(
        link: &Arc<Link>,
        ttl: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Arc<Lease>, mpsc::UnboundedReceiver<Request>), BackendError> {
        let confirmed = clock.now();
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let granted = link.ask("attempt", |client| async move {
            client.lease_client().grant(seconds, None).await
        });
        let granted = granted
            .await
            .map_err(|failed| failed.into_error("attempt"))?;
        if granted.ttl() < seconds {
            let why = format!("the server grants a lease of {} s only", granted.ttl());
            return Err(fault("attempt", Outcome::Rejected, why));
        }
        let lease = Lease::new(granted.id(), ttl, clock, confirmed);
        let (requests, requested) = mpsc::unbounded_channel();
        let session = Self {
            lease: Arc::clone(&lease),
            requests,
            link: Arc::clone(link),
        };
        Ok((Arc::new(session), lease, requested))
    }

    /// Asks the server whether the lease has ended. Returns `false` if it does not say so within `limit`.
    pub(crate) async fn ask_whether_ended(&self, limit: Duration) -> bool {
        let asked = async {
            if !self.is_gone().await {
                // A server deletes the keys of a lease before the lease itself.
                sleep(KEYS_BEFORE_LEASE).await;
                self.is_gone().await;
            }
        };
        // No answer in time means that nothing is known.
        drop(timeout(limit, asked).await);
        !self.is_alive()
    }

    async fn is_gone(&self) -> bool {
        // With a shorter limit, a slow answer would close the connection, which may be well.
        let gone = matches!(self.link.remaining("watch", self.id()).await, Ok(None));
        if gone {
            self.end();
        }
        gone
    }

    /// Keeps the session alive for a while, because of an attempt. For a `new` key it asks for a keep-alive
    /// if the last one is old, and does not wait for it.
    pub(crate) fn touch(&self, new: bool) {
        self.activate();
        if new && !self.is_confirmed_within(YOUNG) {
            drop(self.request_keep_alive());
        }
    }

    /// Whether the lease can be used for a new key. Asks the server if the last confirmation is old.
    pub(crate) async fn is_fresh(&self) -> bool {
        if self.is_confirmed_within(OLD) {
            return true;
        }
        let confirmed = wait(self.request_keep_alive()).await;
        confirmed.is_ok() && self.is_alive()
    }

    /// Whether a keep-alive later than `reported` is recent, so that a renewal needs no other.
    pub(crate) fn is_renewed_since(&self, reported: Moment) -> bool {
        self.activate();
        self.confirmed() > reported && self.is_confirmed_within(YOUNG)
    }

    /// Asks for a keep-alive that begins after this call. [`wait`] waits for its result.
    pub(crate) fn request_keep_alive(&self) -> oneshot::Receiver<Result<(), BackendError>> {
        let (request, result) = oneshot::channel();
        drop(self.requests.send(request));
        result
    }
}

/// Waits for the result of a keep-alive.
pub(crate) async fn wait(
    result: oneshot::Receiver<Result<(), BackendError>>,
) -> Result<(), BackendError> {
    let ended = || fault("renew", Outcome::Unavailable, "the session has ended");
    result.await.unwrap_or_else(|_| Err(ended()))
}
