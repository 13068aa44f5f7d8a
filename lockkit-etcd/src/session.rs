//! The lease that keys stand on, kept alive by renewals and by the attempts of those who wait.
//!
//! A keep-alive that is answered proves that the lease lives, and not that a key is still there:
//! whoever may write can delete one. It says nothing either about a key that a late request has put
//! there after its ticket was released, which such a lease would keep for ever. So a beat asks for the
//! keys of the lease as well, where there are holds, or a key may have been put late: a hold whose key
//! is missing is lost, a key that no ticket claims is deleted.

mod heart;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkit_core::clock::{Clock, Moment};
use lockkit_core::{BackendError, Outcome};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use self::heart::Heart;
use crate::desk::Desk;
use crate::error::{Failed, fault};
use crate::link::Link;

/// So many bytes of keys stand on one lease: the answer with all of them must fit into a message.
const FULL: usize = 2 << 20;
/// So many keys are read in one request.
const PAGE: usize = 100;

type Answer = oneshot::Sender<Result<(), BackendError>>;

/// A lease and what stands on it. The last reference ends its task, which revokes the lease.
#[derive(Debug)]
pub(crate) struct Session {
    shared: Arc<Shared>,
    asks: mpsc::UnboundedSender<Answer>,
    link: Arc<Link>,
}

/// For how much of a lease beats go on after an attempt or a renewal. A client that hangs loses its
/// holds: its session is not kept for long.
const ACTIVE: u32 = 2;
/// How much of a lease is between two beats.
const BEAT: u32 = 5;
/// The same where nothing is held.
const IDLE_BEAT: u32 = 2;
/// How much of a lease is between a beat that failed and the next.
const RETRY: u32 = 20;
/// How much of a lease has passed when an attempt asks for a beat, so that grants are young.
const YOUNG: u32 = 6;
/// How much of a lease has passed when it is confirmed before it is used again.
const OLD: u32 = 2;

/// So long a server may take between the end of the keys of a lease and that of the lease.
const KEYS_BEFORE_LEASE: Duration = Duration::from_millis(20);

/// What a session is made of.
pub(crate) struct Plan {
    pub(crate) ttl: Duration,
    /// Counts from the attempt and not from the last beat: a mutant.
    pub(crate) ageless: bool,
    pub(crate) link: Arc<Link>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: tokio::runtime::Handle,
}

#[derive(Debug)]
pub(crate) struct Shared {
    lease: i64,
    ttl: Duration,
    ageless: bool,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Before the last acknowledged keep-alive, or the lease's making, was written.
    base: Moment,
    phase: Phase,
    tickets: usize,
    bytes: usize,
    /// How many keys have been numbered.
    numbers: u64,
    /// Numbers whose keys are gone for certain. They are used again: the server looks at each key that
    /// was ever below a lock, also at those that are gone, until its history is compacted.
    free: BTreeSet<u64>,
    /// Whether a ticket has left whose key may still be put, or be there: the keys are looked at, although
    /// none of them is a hold.
    doubtful: bool,
    idle_since: Instant,
    /// Until then beats go on by themselves.
    active_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Alive,
    /// Nobody needs it, and nobody gets it any more.
    Closing,
    /// The server says that it has ended.
    Ended,
}

impl Session {
    /// Makes a lease.
    pub(crate) async fn begin(plan: Plan) -> Result<Arc<Self>, BackendError> {
        let base = plan.clock.now();
        let seconds = i64::try_from(plan.ttl.as_secs()).unwrap_or(i64::MAX);
        let granted = plan
            .link
            .ask(
                "attempt",
                plan.link.request_timeout(),
                |client| async move { client.lease_client().grant(seconds, None).await },
            )
            .await
            .map_err(|failed| failed.into_error("attempt"))?;
        if granted.ttl() < seconds {
            let why = format!("the server grants a lease of {} s only", granted.ttl());
            return Err(fault("attempt", Outcome::Rejected, why));
        }
        let shared = Arc::new(Shared {
            lease: granted.id(),
            ttl: plan.ttl,
            ageless: plan.ageless,
            clock: Arc::clone(&plan.clock),
            state: Mutex::new(State {
                base,
                phase: Phase::Alive,
                tickets: 0,
                bytes: 0,
                numbers: 0,
                free: BTreeSet::new(),
                doubtful: false,
                idle_since: Instant::now(),
                active_until: Instant::now() + plan.ttl / ACTIVE,
            }),
        });
        let (asks, asked) = mpsc::unbounded_channel();
        let task = Heart {
            shared: Arc::clone(&shared),
            link: Arc::clone(&plan.link),
            desk: plan.desk,
            runtime: plan.runtime.clone(),
            sweeping: None,
            keeping: None,
        };
        // Detached: it ends with the session.
        drop(plan.runtime.spawn(task.run(asked)));
        Ok(Arc::new(Self {
            shared,
            asks,
            link: plan.link,
        }))
    }

    pub(crate) fn lease(&self) -> i64 {
        self.shared.lease
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.shared.ttl
    }

    /// From when on its holds count: when the lease was last confirmed.
    pub(crate) fn since(&self) -> Moment {
        if self.shared.ageless {
            return self.shared.clock.now();
        }
        self.base()
    }

    pub(crate) fn lives(&self) -> bool {
        self.shared.lock().phase != Phase::Ended
    }

    /// Whether another ticket may stand on it.
    pub(crate) fn takes_tickets(&self) -> bool {
        let state = self.shared.lock();
        state.phase == Phase::Alive && state.bytes < FULL
    }

    /// Counts a ticket with a key of so many bytes, and numbers the key; refused when the session ends.
    pub(crate) fn join(&self, bytes: usize) -> Option<u64> {
        let mut state = self.shared.lock();
        if state.phase != Phase::Alive {
            return None;
        }
        state.tickets += 1;
        state.bytes += bytes;
        let free = state.free.pop_first();
        Some(free.unwrap_or_else(|| {
            state.numbers += 1;
            state.numbers
        }))
    }

    /// Counts a ticket no more. The number of its key is used again if the key is gone for certain,
    /// and no request that was given up can still make or delete it.
    pub(crate) fn leave(&self, bytes: usize, number: u64, gone: bool) {
        let mut state = self.shared.lock();
        if gone {
            state.free.insert(number);
        } else {
            state.doubtful = true;
        }
        state.tickets = state.tickets.saturating_sub(1);
        state.bytes = state.bytes.saturating_sub(bytes);
        state.idle_since = Instant::now();
    }

    /// Asks whether the lease has ended; no, if the server does not say so within `limit`. A server takes
    /// the keys of a lease away before the lease itself: one that still lives is asked for once more.
    pub(crate) async fn has_ended(&self, limit: Duration) -> bool {
        let asked = async {
            if !self.is_gone().await {
                sleep(KEYS_BEFORE_LEASE).await;
                self.is_gone().await;
            }
        };
        // What was not answered in time is not known.
        drop(timeout(limit, asked).await);
        !self.lives()
    }

    async fn is_gone(&self) -> bool {
        let lease = self.shared.lease;
        // A limit of the request itself would give up its connection, which may be well.
        let asked = self
            .link
            .ask("watch", self.link.request_timeout(), |client| async move {
                client.lease_client().time_to_live(lease, None).await
            });
        let gone = match asked.await {
            Ok(answer) => answer.ttl() < 0,
            Err(failed) => matches!(failed, Failed::LeaseGone),
        };
        if gone {
            self.end();
        }
        gone
    }

    /// The server says that the lease has ended.
    pub(crate) fn end(&self) {
        self.shared.lock().phase = Phase::Ended;
    }

    /// Whether its lease was confirmed within the given part of its length.
    fn confirmed_within(&self, part: u32) -> bool {
        let age = self.shared.clock.now().since(self.shared.lock().base);
        age < self.shared.ttl / part
    }

    /// An attempt stands on it: beats go on for a while. For a `new` key one is asked for if the last one
    /// was some time ago; nobody waits for it.
    pub(crate) fn touch(&self, new: bool) {
        self.shared.lock().active_until = Instant::now() + self.shared.ttl / ACTIVE;
        if new && !self.confirmed_within(YOUNG) {
            drop(self.ask());
        }
    }

    /// Whether the lease can be used for a new key; asks the server if nobody has for long.
    pub(crate) async fn is_fresh(&self) -> bool {
        if self.confirmed_within(OLD) {
            return true;
        }
        self.beat().await.is_ok() && self.lives()
    }

    /// When the lease was confirmed in a beat that was not told yet to whom this is said, and that is
    /// not long ago: another would tell nothing new.
    pub(crate) fn news_since(&self, told: Moment) -> Option<Moment> {
        let mut state = self.shared.lock();
        let base = state.base;
        state.active_until = Instant::now() + self.shared.ttl / ACTIVE;
        drop(state);
        (base > told && self.confirmed_within(YOUNG)).then_some(base)
    }

    /// Before the last acknowledged request that confirmed the lease was written.
    pub(crate) fn base(&self) -> Moment {
        self.shared.lock().base
    }

    /// Keeps the lease alive and looks at its keys, in a beat that begins after this call.
    pub(crate) async fn beat(&self) -> Result<(), BackendError> {
        let answer = self.ask();
        settle(answer).await
    }

    /// Asks for a beat, to be awaited later.
    pub(crate) fn ask(&self) -> oneshot::Receiver<Result<(), BackendError>> {
        let (answer, answered) = oneshot::channel();
        drop(self.asks.send(answer));
        answered
    }
}

/// Waits for a beat that was asked for.
pub(crate) async fn settle(
    answered: oneshot::Receiver<Result<(), BackendError>>,
) -> Result<(), BackendError> {
    let ended = || fault("renew", Outcome::Unavailable, "the session has ended");
    answered.await.unwrap_or_else(|_| Err(ended()))
}

impl Shared {
    /// Whether the key with this number is gone, and waits to be used again.
    pub(crate) fn is_free(&self, number: u64) -> bool {
        self.lock().free.contains(&number)
    }

    /// The lease was confirmed by a request that was written at `sent`.
    fn confirmed(&self, sent: Moment) {
        let mut state = self.lock();
        state.base = state.base.max(sent);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
