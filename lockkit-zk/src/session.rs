//! The session with the ensemble: its begin, the proof that it lives, and its successor.
//!
//! The client library keeps a session over lost connections. After a session has ended, the next request
//! that needs one begins a new one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::clock::{Clock, Moment};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, Outcome};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState, Stat};

use crate::config::{Access, PORT, ZkStoreBuilder};
use crate::connection::{connect, most_between_pings};
use crate::error::{Result, fault, of_request};

/// How long a request waits for the connection before it fails.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most bytes of paths that are watched. When it connects again, the library sends them in one request up to 128 kB;
/// with two, it does not know which reply belongs to which, and never connects again.
const WATCHED: usize = 120 * 1024;

/// One session, from its begin to its end.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The servers, for messages.
    place: String,
    clock: Arc<dyn Clock>,
    /// How long a hold lasts after the last acknowledged heartbeat was written.
    pub(crate) lease: Duration,
    /// When the last acknowledged request was written that needs the leader.
    acknowledged: Mutex<Moment>,
    /// When the last heartbeat was written, acknowledged or not.
    heartbeat: Mutex<Moment>,
    /// The length of the chroot.
    root: usize,
    watched: Mutex<WatchedPaths>,
}

/// The paths that are watched, each with the number of its watches. The library sends each once.
#[derive(Default)]
struct WatchedPaths {
    counts: HashMap<String, u32>,
    bytes: usize,
}

/// A watch that is counted; dropped, it makes room for another.
pub(crate) struct Watched {
    session: Arc<Session>,
    path: String,
}

impl Watched {
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watched = lock(&self.session.watched);
        if let Some(count) = watched.counts.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                watched.counts.remove(&self.path);
                watched.bytes -= self.session.root + self.path.len();
            }
        }
    }
}

impl Session {
    pub(crate) async fn begin(config: &ZkStoreBuilder) -> Result<Arc<Self>, (Outcome, String)> {
        let began = config.clock.now();
        let client = connect(config).await?;
        // The timeout that was granted first: the library does not say when a later connection gets another one.
        let lease = lease_of(client.session_timeout(), config.session);
        let chroot = match config.chroot.trim_end_matches('/') {
            "" => "/",
            path => path,
        };
        let bad = |_| (Outcome::Rejected, "the chroot is no path".to_owned());
        Ok(Arc::new(Self {
            client: client.chroot(chroot).map_err(bad)?,
            place: config.hosts.join(", "),
            clock: Arc::clone(&config.clock),
            lease,
            // The leader created the session after this moment.
            acknowledged: Mutex::new(began),
            heartbeat: Mutex::new(began),
            root: chroot.len(),
            watched: Mutex::default(),
        }))
    }

    /// Counts a path that is to be watched.
    ///
    /// # Errors
    /// - [`Outcome::Unavailable`] if too many are: its ticket polls.
    pub(crate) fn watching(self: &Arc<Self>, path: String) -> Result<Watched> {
        let mut watched = lock(&self.watched);
        if !watched.counts.contains_key(&path) {
            let bytes = watched.bytes + self.root + path.len();
            if bytes > WATCHED {
                let why = "the session watches as many nodes as the client library can";
                return Err(fault("watch", Outcome::Unavailable, why));
            }
            watched.bytes = bytes;
        }
        *watched.counts.entry(path.clone()).or_default() += 1;
        let session = Arc::clone(self);
        Ok(Watched { session, path })
    }

    /// The error of a request, with the servers.
    pub(crate) fn error(&self, operation: &'static str, error: &Error) -> BackendError {
        of_request(operation, error, Some(&self.place))
    }

    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
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
    /// leader answers it, or one that was cut off and has not noticed, see "Settings of the servers". Requests that are
    /// sent after it see all writes that were acknowledged before. INV-2.
    pub(crate) fn heartbeat(
        &self,
        operation: &'static str,
    ) -> impl Future<Output = Result<()>> + Send + '_ {
        let sent = self.now();
        *lock(&self.heartbeat) = sent;
        // Sent here, and not when the answer is awaited.
        let sync = self.client.sync("/");
        async move {
            sync.await.map_err(|error| self.error(operation, &error))?;
            self.acknowledge(sent);
            Ok(())
        }
    }

    /// How long after the last heartbeat another is due while a ticket waits: a grant that comes without a
    /// request has what is left of the lease.
    pub(crate) fn period(&self) -> Duration {
        self.lease / 3
    }

    /// Sends a heartbeat unless one was sent half a period ago or later: all waiters ask for it.
    pub(crate) async fn keep_young(&self, operation: &'static str) -> Result<()> {
        let last = *lock(&self.heartbeat);
        if self.now() < last + self.period() / 2 {
            return Ok(());
        }
        self.heartbeat(operation).await
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

    /// Asks for a node, if it is there. The request is sent here, and not when the answer is awaited.
    pub(crate) fn stat(
        &self,
        operation: &'static str,
        path: &str,
    ) -> impl Future<Output = Result<Option<Stat>>> + Send + use<> {
        let stat = self.client.check_stat(path);
        async move {
            stat.await
                .map_err(|error| of_request(operation, &error, None))
        }
    }

    /// Deletes a node; returns whether it was there.
    pub(crate) async fn delete(&self, operation: &'static str, path: &str) -> Result<bool> {
        let sent = self.now();
        let deleted = match self.client.delete(path, None).await {
            Ok(()) => true,
            Err(Error::NoNode) => false,
            Err(error) => return Err(self.error(operation, &error)),
        };
        self.acknowledge(sent);
        Ok(deleted)
    }

    /// Waits for the connection. Without one the library would keep a request and send it later, when its
    /// caller may have gone.
    pub(crate) async fn connected(&self, operation: &'static str) -> Result<()> {
        let mut states = self.client.state_watcher();
        let waiting = async {
            loop {
                match self.client.state() {
                    SessionState::SyncConnected => return Ok(()),
                    state if state.is_terminated() => {
                        return Err(self.error(operation, &Error::SessionExpired));
                    }
                    _ => drop(states.changed().await),
                }
            }
        };
        let silent = || {
            let why = format!("there is no connection ({})", self.place);
            fault(operation, Outcome::Unavailable, why)
        };
        timeout(PATIENCE, waiting).await.map_err(|_| silent())?
    }

    /// Creates a node and all above it as containers, which the server removes when they are empty. Those
    /// outside the chroot are persistent.
    pub(crate) async fn make(&self, path: &str, access: Access) -> Result<(), Error> {
        let container = options(CreateMode::Container, access);
        let chroot = self.client.path();
        let made = self.client.mkdir(path, &container).await;
        if made != Err(Error::NoNode) || chroot == "/" {
            return made;
        }
        let whole = self.client.clone().chroot("/").map_err(|_| Error::NoNode)?;
        let persistent = options(CreateMode::Persistent, access);
        whole.mkdir(chroot, &persistent).await?;
        self.client.mkdir(path, &container).await
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

/// The present session, and the way to the next one.
pub(crate) struct Sessions {
    pub(crate) config: ZkStoreBuilder,
    pub(crate) runtime: Handle,
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
    pub(crate) async fn begin(mut config: ZkStoreBuilder) -> Result<Arc<Self>> {
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
    pub(crate) async fn live(self: &Arc<Self>, operation: &'static str) -> Result<Arc<Session>> {
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
            begin
        });
        if !first {
            return;
        }
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            let begun = Session::begin(&this.config).await;
            this.present.send_modify(|state| {
                state.connecting = false;
                state.failed = begun.map(|session| state.session = session).err();
            });
        });
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
