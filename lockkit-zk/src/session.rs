//! The session with the ensemble: its begin, the proof that it lives, and its successor.
//!
//! The client library keeps a session over lost connections. After a session has ended, the next request
//! that needs one begins a new one.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::clock::{Clock, Moment};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, Outcome};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use crate::config::{Access, PORT, ZkStoreBuilder};
use crate::connection::{connect, most_between_pings, twin};
use crate::error::{fault, of_request};

/// How long a request waits for the connection before it fails.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a session that is being closed may still seem to live.
const TWIN: Duration = Duration::from_millis(200);
/// How often a second connection tries to close a session.
const TWINS: u32 = 20;

/// One session, from its begin to its end.
pub(crate) struct Session {
    client: Client,
    /// Without the chroot, to create the nodes above it.
    whole: Client,
    clock: Arc<dyn Clock>,
    lease: Duration,
    /// When the last acknowledged request was written that needs the leader.
    acknowledged: Mutex<Moment>,
}

impl Session {
    /// Begins a session.
    pub(crate) async fn begin(config: &ZkStoreBuilder) -> Result<Arc<Self>, (Outcome, String)> {
        let began = config.clock.now();
        let whole = connect(config).await?;
        let lease = lease_of(whole.session_timeout(), config.session);
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
            // The leader created the session after this moment.
            acknowledged: Mutex::new(began),
        }))
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// How long it lasts without a heartbeat, as the ensemble granted it.
    pub(crate) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// How long a hold lasts after the last acknowledged heartbeat was written.
    pub(crate) const fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether it has ended for ever.
    pub(crate) fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// The moment before a request is sent.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Sends a `sync`, which proves with its answer that the session was alive when it was sent: only the
    /// leader answers it. Requests that are sent after it see all writes that were acknowledged before. INV-2.
    pub(crate) fn heartbeat(
        &self,
        operation: &'static str,
    ) -> impl Future<Output = Result<(), BackendError>> + Send + '_ {
        let sent = self.now();
        // Sent here, and not when the answer is awaited.
        let sync = self.client.sync("/");
        async move {
            sync.await.map_err(|error| of_request(operation, &error))?;
            self.acknowledge(sent);
            Ok(())
        }
    }

    /// Notes the answer to a write that was sent at `sent`.
    pub(crate) fn acknowledge(&self, sent: Moment) {
        let mut last = lock(&self.acknowledged);
        *last = sent.max(*last);
    }

    /// When the last heartbeat was written that the leader has certainly seen.
    pub(crate) fn since(&self) -> Moment {
        *lock(&self.acknowledged)
    }

    /// Waits for the connection. Without one the library would keep a request and send it later, when its
    /// caller may have gone.
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

    /// Creates a node and all above it as containers, which the server removes when they are empty. Those
    /// outside the chroot are persistent.
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

/// The part of a session that a client may count on when its last acknowledged heartbeat is written. A
/// follower passes heartbeats on to the leader twice a tick, and never if it dies first. So the leader may
/// know only of the library's ping before, from up to half a tick earlier. A session lasts two ticks at
/// least.
fn lease_of(granted: Duration, requested: Duration) -> Duration {
    granted - granted / 4 - most_between_pings(granted, requested)
}

/// The options for new nodes.
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

struct State {
    session: Arc<Session>,
    /// Whether a task is beginning another one.
    connecting: bool,
    /// Why the last attempt failed.
    failed: Option<(Outcome, String)>,
}

impl Sessions {
    pub(crate) async fn begin(mut config: ZkStoreBuilder) -> Result<Arc<Self>, BackendError> {
        if config.hosts.is_empty() {
            config = config.host("127.0.0.1", PORT);
        }
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

    /// Returns a session that is alive and connected: a new one if the present one has ended.
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
        let Ok(Ok(state)) = timeout(PATIENCE, waiting).await else {
            let why = "a new session is being created";
            return Err(fault(operation, Outcome::Unavailable, why));
        };
        match &state.failed {
            Some((outcome, why)) => Err(fault(operation, *outcome, why.as_str())),
            None => Ok(Arc::clone(&state.session)),
        }
    }

    /// Begins a new session in the background, unless one is alive or beginning.
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

    /// Ends the present session at the ensemble, as if it had expired: a second connection takes it over
    /// and closes it.
    pub(crate) async fn expire(&self) -> Result<(), BackendError> {
        let session = self.present();
        let mut states = session.client().state_watcher();
        let mut tries = 0;
        while !session.has_ended() {
            tries += 1;
            match twin(&self.config, session.client().session().clone()).await {
                // The last handle closes the session.
                Ok(second) => drop(second),
                // Two connections that want one session disturb each other.
                Err(_) if tries < TWINS => {}
                Err(error) => return Err(of_request("expire", &error)),
            }
            let ended = async {
                // A server may confuse the two connections, leave ours open and answer its pings. A request
                // that needs the leader gets the truth.
                drop(session.client().sync("/").await);
                while !session.has_ended() {
                    states.changed().await;
                }
            };
            // Our own connection may be back before the second one has closed the session: then once more.
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

    /// The leader may know of no heartbeat for half a tick and the longest time between two pings.
    #[test]
    fn lease_ends_before_the_leader_may_end_the_session() {
        for (session, tick) in [
            (4_000, 2_000),
            (5_000, 2_000),
            (6_000, 2_000),
            (30_000, 15_000),
        ] {
            let [session, tick] = [session, tick].map(Duration::from_millis);
            // The library's rule: a ping after three eighths of the silence, checked every eighth.
            let pings = (session / 5).max((session * 2 / 5).min(Duration::from_secs(2))) / 2;
            let lease = lease_of(session, session);
            assert!(
                lease + tick / 2 + pings <= session,
                "{lease:?} of {session:?}"
            );
            assert!(lease >= session / 2, "{lease:?} of {session:?}");
        }
        let requested = Duration::from_secs(3600);
        let granted = Duration::from_secs(40);
        assert_eq!(lease_of(granted, requested), Duration::from_secs(18));
    }
}
