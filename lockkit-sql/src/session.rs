//! The session of a client: a connection that proves that the client is alive.
//!
//! The connection holds an advisory lock of the server, and the row of each pinned hold has its key. While
//! the session lives, a hold is a lease like any other. The server frees the advisory lock with the
//! connection. The next attempt of another client then shortens the lease, to a time that is longer than
//! the client needs to learn of the end. So the order is: the session ends, its client declares its holds
//! lost, another client gets the lock.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::store::waiters::Waiters;
use lockkit_core::store::{Backoff, lock};
use lockkit_core::{BackendError, HolderId, LossReason, Outcome};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::config::PATIENCE;
use crate::error::{Errors, Problem, Result, at};
use crate::places::{self, Known};
use crate::pool::longest_use;

/// A session is given up whose server returns no reply for this long.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// The time between two looks whether an old session has no holds left.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The state of a session, and the tickets whose holds end with it.
#[derive(Debug)]
pub(crate) struct Session {
    waiters: Arc<Waiters<Known>>,
    errors: Errors,
    /// Whether holds end with it.
    pub(crate) pins: bool,
    state: watch::Sender<State>,
    task: Mutex<Option<AbortHandle>>,
    /// Whether one was open before.
    had_one: AtomicBool,
}

#[derive(Clone, Debug)]
enum State {
    Opening,
    /// With its key.
    Open(i64),
    /// It will be opened again after a pause.
    Failed(BackendError),
}

/// How a session is opened, and used until it ends.
#[async_trait]
pub(crate) trait Connect: Send + Sync + 'static {
    /// Dropped, it is closed.
    type Connection: Send;

    fn session(&self) -> &Session;

    /// Connects. Returns the key of the session too, or 0 for a connection that proves nothing.
    async fn open_session(&self) -> Result<(Self::Connection, i64)>;

    /// Returns when the connection has ended.
    async fn ended(&self, connection: &mut Self::Connection);
}

/// Keeps the session open from now on. Opens the `first` one before it returns. Does nothing if it was called before in a
/// runtime that has not ended.
pub(crate) async fn start<C: Connect>(this: &Arc<C>, first: bool) -> Result<()> {
    let first = match first {
        true => Some(this.open_session().await?),
        false => None,
    };
    let mut task = lock(&this.session().task);
    if task.as_ref().is_none_or(AbortHandle::is_finished) {
        let keep = Handle::current().spawn(keep(Arc::clone(this), first));
        *task = Some(keep.abort_handle());
    }
    Ok(())
}

/// Keeps a session open until it is closed.
async fn keep<C: Connect>(this: Arc<C>, mut first: Option<(C::Connection, i64)>) {
    let session = this.session();
    let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        let opened = match first.take() {
            Some(opened) => Ok(opened),
            None => this.open_session().await,
        };
        match opened {
            Ok((mut connection, key)) => {
                session.opened(key);
                let end = End(session, key);
                backoff.reset();
                use_until_old(&*this, &mut connection).await;
                drop(end);
            }
            Err(error) => {
                session.state.send_replace(State::Failed(error));
            }
        }
        sleep(backoff.pause()).await;
    }
}

/// Returns when the connection has ended, or is old and no hold ends with it.
async fn use_until_old<C: Connect>(this: &C, connection: &mut C::Connection) {
    let mut ended = pin!(this.ended(connection));
    let mut rest = longest_use();
    while timeout(rest, &mut ended).await.is_err() && this.session().holds() > 0 {
        rest = LOOK_AGAIN;
    }
}

/// Ends the holds of a session when it is dropped, also with a runtime that stops.
struct End<'a>(&'a Session, i64);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let Self(session, key) = self;
        // First: no attempt under way may become a hold of this session.
        session.state.send_replace(State::Opening);
        session.waiters.for_each(|_, entry| {
            if *key != 0 && entry.data.sessions().contains(key) {
                places::lost(entry, LossReason::SessionEnded);
            }
        });
    }
}

impl Session {
    /// `waiters`: the tickets of the store.
    pub(crate) fn new(errors: Errors, pins: bool, waiters: Arc<Waiters<Known>>) -> Self {
        Self {
            waiters,
            errors,
            pins,
            state: watch::Sender::new(State::Opening),
            had_one: AtomicBool::new(false),
            task: Mutex::default(),
        }
    }

    /// The key of the session. Waits while it is being opened.
    async fn key(&self, address: impl Fn() -> String + Send + Sync) -> Result<i64> {
        let mut state = self.state.subscribe();
        let is_known = |state: &State| !matches!(state, State::Opening);
        let known = timeout(PATIENCE, state.wait_for(is_known)).await;
        match known.map(|state| state.map(|state| state.clone())) {
            Ok(Ok(State::Open(key))) => Ok(key),
            Ok(Ok(State::Failed(error))) => Err(error),
            _ => {
                let text = "the session of this client cannot be opened";
                Err(at(&address(), self.error(Outcome::Unavailable, text)))
            }
        }
    }

    /// Makes an attempt, whose hold ends with the session: it gets the key of the session. `address`: that of the
    /// server, for messages.
    pub(crate) async fn attempt<F>(
        &self,
        ticket: &Ticket,
        address: impl Fn() -> String + Send + Sync,
        acquire: impl FnOnce(i64) -> F,
    ) -> Result<Attempt>
    where
        F: Future<Output = Result<Attempt>>,
    {
        let key = self.key(&address).await?;
        let mut result = acquire(key).await;
        if matches!(result, Ok(Attempt::Granted(_))) {
            // The order matters: if the session ends now, either its end finds the hold or this finds the
            // end.
            self.waiters
                .with(ticket.holder, |entry| entry.data.session = key);
            if !matches!(*self.state.borrow(), State::Open(open) if open == key) {
                let text = "the session of this client has ended";
                result = Err(at(&address(), self.error(Outcome::Indeterminate, text)));
            }
        }
        result
    }

    /// Gives a hold up that was granted for a session that has ended.
    pub(crate) fn lose_if_ended(&self, holder: HolderId) {
        let open = match *self.state.borrow() {
            State::Open(key) => key,
            _ => 0,
        };
        self.waiters.with(holder, |entry| {
            let has_ended = |key: &i64| *key != 0 && *key != open;
            if entry.data.sessions().iter().any(has_ended) {
                places::lost(entry, LossReason::SessionEnded);
            }
        });
    }

    pub(crate) fn holds(&self) -> usize {
        let mut holds = 0;
        self.waiters
            .for_each(|_, entry| holds += usize::from(entry.data.sessions() != [0, 0]));
        holds
    }

    /// Ends the session, with the store.
    pub(crate) fn close(&self) {
        if let Some(task) = &*lock(&self.task) {
            task.abort();
        }
    }

    /// The error when another connection finds that its server does not have this session. `shared` says what
    /// is between, if there has been no session yet. Later, the name of the server leads to another one.
    pub(crate) fn elsewhere(&self, shared: &str) -> BackendError {
        if !self.had_one.load(Ordering::Relaxed) {
            return self.errors.rejected("open", Problem::Refused, shared);
        }
        let text = "the connections of the client lead to different servers";
        self.errors
            .fault("open", Problem::Connection, Outcome::Unavailable, text)
    }

    /// Wake-ups may have been missed until now, so that all tickets try again.
    fn opened(&self, key: i64) {
        self.had_one.store(true, Ordering::Relaxed);
        self.state.send_replace(State::Open(key));
        self.waiters.wake_all();
    }

    fn error(&self, outcome: Outcome, text: &str) -> BackendError {
        self.errors
            .fault("attempt", Problem::Connection, outcome, text)
    }
}

#[cfg(test)]
mod tests {
    use lockkit_core::FencingToken;
    use lockkit_core::contract::{Grant, Wake, Watch as _};
    use tokio::sync::Notify;

    use super::*;
    use crate::places::tests::ticket;
    use crate::places::{Granted, Seen};
    use crate::pool::OLDEST;

    /// Sessions with the keys 1, 2 ..., each of which ends when it is told to.
    struct Fake(Session, Notify, Mutex<i64>);

    #[async_trait]
    impl Connect for Fake {
        type Connection = ();

        fn session(&self) -> &Session {
            &self.0
        }

        async fn open_session(&self) -> Result<((), i64)> {
            let mut key = lock(&self.2);
            *key += 1;
            Ok(((), *key))
        }

        async fn ended(&self, (): &mut ()) {
            self.1.notified().await;
        }
    }

    /// With its first session open.
    async fn started() -> Arc<Fake> {
        let errors = Errors {
            backend: "fake",
            classify: |_, _| (Problem::Refused, Outcome::Rejected),
            conflicts: &[],
            unprepared: &[],
        };
        let fake = Fake(
            Session::new(errors, true, Arc::default()),
            Notify::new(),
            Mutex::new(0),
        );
        let fake = Arc::new(fake);
        start(&fake, true).await.unwrap();
        fake
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_session_loses_its_holds_only() {
        let fake = started().await;
        let session = fake.session();
        let granted = || async {
            let token = FencingToken::new(7).unwrap();
            Ok(Attempt::Granted(Grant::new(token, Duration::from_secs(30))))
        };
        let (first, late, second) = (ticket(), ticket(), ticket());
        session.waiters.attempted(&first);
        session.waiters.attempted(&late);
        session
            .attempt(&first, String::new, |_| granted())
            .await
            .unwrap();
        let mut lost = session.waiters.watch(&first);
        let attempt = session.attempt(&late, String::new, async |_| {
            fake.1.notify_one();
            let ended = Wake::Lost(LossReason::SessionEnded);
            while lost.changed().await.unwrap() != ended {}
            granted().await
        });
        let error = attempt.await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Indeterminate);

        let again = session.attempt(&second, String::new, |key| {
            session.waiters.attempted(&second);
            assert_eq!(key, 2);
            granted()
        });
        again.await.unwrap();
        for ended in [&first, &late] {
            session.waiters.forget(ended.holder);
        }
        let mut kept = session.waiters.watch(&second);
        let wake = timeout(OLDEST * 2, kept.changed()).await;
        assert!(wake.is_err(), "{wake:?}");
        // It is old: its last hold ends, and so does the session.
        session.waiters.forget(second.holder);
        sleep(LOOK_AGAIN + SHORTEST_PAUSE * 2).await;
        assert_eq!(session.key(String::new).await.unwrap(), 3);
        session.close();
    }

    /// A program may open a store in one runtime, and use it in another.
    #[test]
    fn starts_again_after_the_end_of_its_runtime() {
        let runtime = || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_time().build();
            runtime.unwrap()
        };
        let fake = runtime().block_on(started());
        runtime().block_on(async {
            start(&fake, false).await.unwrap();
            assert_eq!(fake.session().key(String::new).await.unwrap(), 2);
        });
    }

    /// A release may grant to a ticket while its attempt, which found the lock held, is under way.
    #[tokio::test(start_paused = true)]
    async fn end_of_session_takes_back_a_grant_that_is_not_believed_yet() {
        let fake = started().await;
        let (session, told) = (fake.session(), ticket());
        let number = session.waiters.attempted(&told);
        let granted = Granted {
            token: 8,
            session: 1,
            end: 1,
        };
        places::granted(&session.waiters, told.holder, granted);
        fake.1.notify_one();
        while !matches!(session.key(String::new).await, Ok(2)) {
            sleep(SHORTEST_PAUSE).await;
        }
        let held = Seen {
            held: true,
            place: 3_000_000,
            end: 2,
            token: 7,
            ..Seen::default()
        };
        places::told_to_wait(&session.waiters, &told, Some(&held));
        let waits = Ok(Attempt::held());
        session.waiters.answered(&told, number, &waits);
        let wake = session.waiters.watch(&told).changed().await.unwrap();
        assert_eq!(wake, Wake::Lost(LossReason::SessionEnded));
        session.close();
    }
}
