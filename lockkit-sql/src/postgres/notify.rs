//! Wake-ups: one connection that listens, and who waits for which name.
//!
//! A ticket that waits is noted before its attempt is written, so that a notification that comes
//! before its watch is kept for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::backend::{Attempt, Ticket, Wake, Watch};
use lockkit_core::{BackendError, HolderId, LockName, LossReason, Outcome};
use sqlx::postgres::PgListener;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::pin::beside;
use crate::pool::Pool;

/// How long a connection is waited for, and a notification to oneself.
const OPENING: Duration = Duration::from_secs(2);
/// After so long without a notification the server is asked whether it is there.
const QUIET: Duration = Duration::from_secs(20);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Where wake-ups arrive and waiters look for them.
#[derive(Debug)]
pub(super) struct Desk {
    channel: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers attempts and openings, in their order.
    steps: u64,
    /// The step at which notifications began to arrive; `None` while they do not.
    open: Option<u64>,
    places: HashMap<LockName, HashMap<HolderId, Place>>,
    listener: Option<AbortHandle>,
}

/// What is known of a ticket that waits.
#[derive(Debug, Default)]
struct Place {
    /// The step of its last attempt.
    written: u64,
    /// Whether the store may know it: the client will release it.
    known: bool,
    retry: bool,
    lost: Option<LossReason>,
    bell: Option<Arc<Notify>>,
}

impl Place {
    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.notify_one();
        }
    }

    fn wake(&mut self) {
        self.retry = true;
        self.ring();
    }
}

impl Desk {
    pub(super) fn new(channel: String) -> Self {
        Self {
            channel,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt is about to be written: wake-ups are kept from now on.
    pub(super) fn attempting(&self, ticket: &Ticket) {
        let mut state = self.lock();
        state.steps += 1;
        let step = state.steps;
        let places = state.places.entry(ticket.name.clone()).or_default();
        let place = places.entry(ticket.holder).or_default();
        place.written = step;
        place.retry = false;
    }

    /// The attempt was answered, or failed.
    pub(super) fn answered(&self, ticket: &Ticket, answer: &Result<Attempt, BackendError>) {
        let mut state = self.lock();
        let Some(place) = state.place(ticket) else {
            return;
        };
        match answer {
            Ok(Attempt::Granted(_)) => place.known |= place.bell.is_some(),
            Ok(_) => place.known = true,
            Err(error) => place.known |= error.outcome() == Outcome::Indeterminate,
        }
        if !place.known {
            state.forget(&ticket.name, ticket.holder);
        }
    }

    /// Forgets a ticket.
    pub(super) fn forget(&self, ticket: &Ticket) {
        self.lock().forget(&ticket.name, ticket.holder);
    }

    /// A hold has ended without its holder.
    pub(super) fn lost(&self, ticket: &Ticket) {
        if let Some(place) = self.lock().place(ticket) {
            place.lost = Some(LossReason::SessionEnded);
            place.ring();
        }
    }

    /// How many tickets are kept.
    pub(super) fn tickets(&self) -> usize {
        self.lock().places.values().map(HashMap::len).sum()
    }

    /// Opens the wake-ups of a ticket.
    pub(super) fn watch(self: &Arc<Self>, ticket: &Ticket) -> Box<dyn Watch> {
        let bell = Arc::new(Notify::new());
        let mut state = self.lock();
        let open = state.open;
        let places = state.places.entry(ticket.name.clone()).or_default();
        let place = places.entry(ticket.holder).or_default();
        place.bell = Some(Arc::clone(&bell));
        place.known = true;
        // Where nobody listens yet, the opening wakes the ticket.
        place.retry |= open.is_some_and(|opened| place.written < opened);
        Box::new(PlaceWatch {
            desk: Arc::clone(self),
            ticket: ticket.clone(),
            bell,
        })
    }

    fn next(&self, ticket: &Ticket) -> Option<Wake> {
        let mut state = self.lock();
        let place = state.place(ticket)?;
        if let Some(reason) = place.lost {
            return Some(Wake::Lost(reason));
        }
        std::mem::take(&mut place.retry).then_some(Wake::Retry)
    }

    /// A notification has come, with the name in hexadecimal digits.
    fn told(&self, payload: &str) {
        let mut state = self.lock();
        let Some(name) = name_of(payload) else {
            return;
        };
        for place in state.places.get_mut(&name).into_iter().flatten() {
            place.1.wake();
        }
    }

    /// Notifications arrive from now on. What came before is not known, so that everybody looks again.
    fn opened(&self) {
        let mut state = self.lock();
        state.steps += 1;
        state.open = Some(state.steps);
        for place in state.places.values_mut().flat_map(HashMap::values_mut) {
            place.wake();
        }
    }

    fn closed(&self) {
        self.lock().open = None;
    }

    /// Listens from now on, if nobody does yet.
    pub(super) fn listen(self: &Arc<Self>, pool: &Arc<Pool<sqlx::Postgres>>) {
        let mut state = self.lock();
        if state.listener.is_none() {
            let listening = listen(Arc::clone(self), Arc::clone(pool));
            state.listener = Some(Handle::current().spawn(listening).abort_handle());
        }
    }

    /// Ends the listening, with the store.
    pub(super) fn close(&self) {
        if let Some(listener) = self.lock().listener.take() {
            listener.abort();
        }
    }
}

impl State {
    fn place(&mut self, ticket: &Ticket) -> Option<&mut Place> {
        self.places.get_mut(&ticket.name)?.get_mut(&ticket.holder)
    }

    fn forget(&mut self, name: &LockName, holder: HolderId) {
        if let Some(places) = self.places.get_mut(name) {
            places.remove(&holder);
            if places.is_empty() {
                self.places.remove(name);
            }
        }
    }
}

/// Keeps a connection that listens, for as long as the store lives.
async fn listen(desk: Arc<Desk>, pool: Arc<Pool<sqlx::Postgres>>) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        if let Ok(Ok(mut listener)) = timeout(OPENING, open(&desk.channel, &pool)).await {
            desk.opened();
            pause = SHORTEST_PAUSE;
            hear(&desk, &mut listener).await;
            desk.closed();
        }
        sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Passes notifications on until the connection ends, or nothing is heard any more: a network that has
/// forgotten a connection tells neither side.
async fn hear(desk: &Desk, listener: &mut PgListener) {
    loop {
        match timeout(QUIET, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => desk.told(notification.payload()),
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                let asked = super::session::send(&mut *listener, "SELECT 1".to_owned());
                if !matches!(timeout(OPENING, asked).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

/// Listens, and hears itself: a pooler in transaction mode would take the order and forget it.
async fn open(channel: &str, pool: &Pool<sqlx::Postgres>) -> Result<PgListener, sqlx::Error> {
    let mut listener = beside(pool.options()).await?;
    listener.listen(channel).await?;
    let probe = format!("probe {}", fastrand::u64(..));
    let channel = channel.replace('\'', "''");
    let text = format!("SELECT pg_notify('{channel}', '{probe}')");
    super::session::send(&mut listener, text).await?;
    loop {
        match listener.try_recv().await? {
            Some(notification) if notification.payload() == probe => return Ok(listener),
            Some(_) => {}
            None => return Err(sqlx::Error::PoolClosed),
        }
    }
}

fn name_of(payload: &str) -> Option<LockName> {
    let digits = payload.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    crate::keys::name_of(&bytes?)
}

/// The wake-ups of one ticket.
struct PlaceWatch {
    desk: Arc<Desk>,
    ticket: Ticket,
    bell: Arc<Notify>,
}

#[async_trait]
impl Watch for PlaceWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        loop {
            if let Some(wake) = self.desk.next(&self.ticket) {
                return Ok(wake);
            }
            self.bell.notified().await;
        }
    }
}

impl Drop for PlaceWatch {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        if let Some(place) = state.place(&self.ticket)
            && place
                .bell
                .as_ref()
                .is_some_and(|bell| Arc::ptr_eq(bell, &self.bell))
        {
            place.bell = None;
        }
    }
}
