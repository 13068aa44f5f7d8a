//! The session with the ensemble: how it is made, what proves that it lives, and what follows it.
//!
//! The client library keeps a session over lost connections by itself. Only when a session has ended
//! is a new one begun, by the next request that needs one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkit_core::clock::{Clock, Moment};
use lockkit_core::{BackendError, Outcome};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use crate::config::{Access, ZkStoreBuilder};
use crate::connection::{connect, most_between_pings, why_not};
use crate::error::{fault, of_connecting, of_request};

/// How long a request waits for the connection before it is answered that there is none.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a session that is being closed may seem to live.
const TWIN: Duration = Duration::from_millis(200);
/// How often it is tried to close a session from another connection.
const TWINS: u32 = 20;

/// One session, from its begin to its end.
pub(crate) struct Session {
    client: Client,
    /// Without the chroot, to make the nodes that lead to it.
    whole: Client,
    clock: Arc<dyn Clock>,
    lease: Duration,
    /// When the last acknowledged request was written that a follower cannot answer alone.
    acknowledged: Mutex<Moment>,
}

impl Session {
    /// Begins a session.
    pub(crate) async fn begin(config: &ZkStoreBuilder) -> Result<Arc<Self>, (Outcome, String)> {
        let began = config.clock.now();
        let limit = config.connect_timeout;
        let whole = match timeout(limit, connect(config)).await {
            Ok(Ok(client)) => client,
            // The library does not tell what became of each member.
            Err(_) | Ok(Err(Error::NoHosts | Error::Timeout | Error::ConnectionLoss)) => {
                return Err((Outcome::Unavailable, why_not(config).await));
            }
            Ok(Err(error)) => return Err(of_connecting(&error)),
        };
        let lease = believed(whole.session_timeout(), config.session);
        let chroot = config.chroot.trim_end_matches('/');
        let client = if chroot.is_empty() {
            whole.clone()
        } else {
            let bad = |_| (Outcome::Rejected, "the chroot is no path".to_owned());
            whole.clone().chroot(chroot.to_owned()).map_err(bad)?
        };
        Ok(Arc::new(Self {
            client,
            whole,
            clock: Arc::clone(&config.clock),
            lease,
            // The leader has made the session after this.
            acknowledged: Mutex::new(began),
        }))
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// How long it lasts without a sign of life, as the ensemble granted it.
    pub(crate) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// How long a hold stands after the last acknowledged sign of life was written.
    pub(crate) const fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether it is over for good.
    pub(crate) fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// The moment before a request is handed over.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// A write or a `sync` that was handed over at `sent` was answered.
    pub(crate) fn acknowledge(&self, sent: Moment) {
        let mut last = self
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = sent.max(*last);
    }

    /// When the last sign of life was written that the leader is known to have seen.
    pub(crate) fn since(&self) -> Moment {
        *self
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the connection. What is handed over without one is kept by the library and carried
    /// out later, when nobody may want it any more.
    pub(crate) async fn connected(&self, operation: &'static str) -> Result<(), BackendError> {
        let mut states = self.client.state_watcher();
        let waiting = async {
            loop {
                match self.client.state() {
                    SessionState::SyncConnected => return Ok(()),
                    state if state.is_terminated() => return Err(ended(operation)),
                    _ => drop(states.changed().await),
                }
            }
        };
        let silent = || fault(operation, Outcome::Unavailable, "there is no connection");
        timeout(PATIENCE, waiting).await.map_err(|_| silent())?
    }

    /// Makes a node and all that lead to it, of the kind that the server removes when they are empty;
    /// those outside the chroot stay.
    pub(crate) async fn make(&self, path: &str, access: Access) -> Result<(), Error> {
        let made = self
            .client
            .mkdir(path, &options(CreateMode::Container, access))
            .await;
        if made != Err(Error::NoNode) || self.client.path() == "/" {
            return made;
        }
        self.whole
            .mkdir(self.client.path(), &options(CreateMode::Persistent, access))
            .await?;
        self.client
            .mkdir(path, &options(CreateMode::Container, access))
            .await
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session")
            .field(&self.client.session_id())
            .finish()
    }
}

/// What is left of a session when its last acknowledged sign of life is written. A follower passes signs
/// of life on to the leader twice a tick, and never if it dies first: the leader may know of none since
/// the library's ping before, from up to half a tick earlier. A session that was wished and granted lasts
/// for two ticks at least.
fn believed(granted: Duration, wished: Duration) -> Duration {
    granted - granted / 4 - most_between_pings(granted, wished)
}

/// How nodes of a kind are made.
pub(crate) const fn options(mode: CreateMode, access: Access) -> CreateOptions<'static> {
    mode.with_acls(match access {
        Access::Anyone => Acls::anyone_all(),
        Access::Creator => Acls::creator_all(),
    })
}

pub(crate) fn ended(operation: &'static str) -> BackendError {
    of_request(operation, &Error::SessionExpired)
}

/// The present session, and the way to the next one.
pub(crate) struct Sessions {
    config: ZkStoreBuilder,
    runtime: Handle,
    present: watch::Sender<State>,
}

#[derive(Clone)]
struct State {
    session: Arc<Session>,
    /// Whether a task tries to begin another.
    connecting: bool,
    /// Why the last try failed.
    failed: Option<(Outcome, String)>,
}

impl Sessions {
    pub(crate) async fn begin(config: ZkStoreBuilder) -> Result<Arc<Self>, BackendError> {
        let begun = Session::begin(&config).await;
        let session = begun.map_err(|(outcome, why)| fault("connect", outcome, why))?;
        let state = State {
            session,
            connecting: false,
            failed: None,
        };
        Ok(Arc::new(Self {
            config,
            runtime: Handle::current(),
            present: watch::Sender::new(state),
        }))
    }

    /// The present session, also one that has ended.
    pub(crate) fn present(&self) -> Arc<Session> {
        Arc::clone(&self.present.borrow().session)
    }

    /// A session that lives and is connected; the next one if the present has ended.
    pub(crate) async fn live(
        self: &Arc<Self>,
        operation: &'static str,
    ) -> Result<Arc<Session>, BackendError> {
        let session = self.present();
        if !session.has_ended() {
            session.connected(operation).await?;
            return Ok(session);
        }
        let mut states = self.present.subscribe();
        self.renew();
        let waiting = states.wait_for(|state| !state.connecting);
        let silent = || {
            fault(
                operation,
                Outcome::Unavailable,
                "a new session is being made",
            )
        };
        let answer = timeout(PATIENCE, waiting).await.map_err(|_| silent())?;
        let state = answer.map_err(|_| silent())?.clone();
        match state.failed {
            Some((outcome, why)) => Err(fault(operation, outcome, why)),
            None => Ok(state.session),
        }
    }

    /// Begins another session in the background, unless one lives or is being made.
    fn renew(self: &Arc<Self>) {
        let first = self.present.send_if_modified(|state| {
            let begin = !state.connecting && state.session.has_ended();
            state.connecting |= begin;
            state.failed.take_if(|_| begin);
            begin
        });
        if !first {
            return;
        }
        let this = Arc::clone(self);
        drop(self.runtime.spawn(async move {
            let begun = Session::begin(&this.config).await;
            this.present.send_modify(|state| {
                state.connecting = false;
                match begun {
                    Ok(session) => state.session = session,
                    Err(why) => state.failed = Some(why),
                }
            });
        }));
    }

    /// Starts a task in the background.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }

    /// Ends the present session at the ensemble, as if it had run out: another connection takes it
    /// over and closes it.
    pub(crate) async fn expire(&self) -> Result<(), BackendError> {
        let session = self.present();
        let mut states = session.client().state_watcher();
        let mut tries = 0;
        while !session.has_ended() {
            tries += 1;
            match crate::connection::twin(&self.config, session.client().session().clone()).await {
                // The last handle closes the session.
                Ok(twin) => drop(twin),
                // Two that want one session disturb each other.
                Err(_) if tries < TWINS => {}
                Err(error) => return Err(of_request("expire", &error)),
            }
            let ended = async {
                // A server that takes one connection of a session for the other leaves ours open and
                // answers its pings; what asks the leader is told.
                drop(session.client().sync("/").await);
                while !session.has_ended() {
                    states.changed().await;
                }
            };
            // Our own connection may be back before the twin has closed the session: then once more.
            let _ = timeout(TWIN, ended).await;
        }
        Ok(())
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("config", &self.config)
            .field("session", &self.present.borrow().session)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leader may have heard nothing for half a tick and what the library lets pass between pings.
    #[test]
    fn a_hold_is_not_believed_in_past_what_the_leader_may_know() {
        for (session, tick) in [
            (4_000, 2_000),
            (5_000, 2_000),
            (6_000, 2_000),
            (30_000, 15_000),
        ] {
            let [session, tick] = [session, tick].map(Duration::from_millis);
            // The library's rule: a ping after three eighths of the silence, looked at every eighth.
            let pings = (session / 5).max((session * 2 / 5).min(Duration::from_secs(2))) / 2;
            let lease = believed(session, session);
            assert!(
                lease + tick / 2 + pings <= session,
                "{lease:?} of {session:?}"
            );
            assert!(lease >= session / 2, "{lease:?} of {session:?}");
        }
        let wished = Duration::from_secs(3600);
        let granted = Duration::from_secs(40);
        assert_eq!(believed(granted, wished), Duration::from_secs(18));
    }
}
