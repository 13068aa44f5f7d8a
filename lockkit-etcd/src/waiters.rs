//! The tickets of a store: what is known of them, and their wake-ups.

use std::sync::{Arc, Mutex};

use lockkit_core::contract::{Renewal, Ticket, Tombstones};
use lockkit_core::store::lock;
use lockkit_core::store::waiters::{self, Entry, TicketWatch};
use lockkit_core::{BackendError, HolderId, LossReason, Outcome};
use tokio::sync::Notify;

use crate::error::fault;
use crate::keys::contender;
use crate::position::{News, Position};
use crate::queue::{Contender, Key, Listing, Tried, token};
use crate::session::Session;
use crate::watches::{KeyWatches, Read};

/// The tickets of a store, and the watches on their keys.
///
/// The mutex of the tickets is taken before that of the watches.
#[derive(Debug)]
pub(crate) struct Waiters {
    pub(crate) tickets: Arc<waiters::Waiters<Position>>,
    watches: Mutex<KeyWatches>,
    tombstones: Mutex<Tombstones>,
    pub(crate) token_base: u64,
    /// Notified when a watch or a read is wanted.
    pub(crate) work: Notify,
}

impl Waiters {
    pub(crate) fn new(token_base: u64) -> Self {
        Self {
            tickets: Arc::default(),
            watches: Mutex::default(),
            tombstones: Mutex::default(),
            token_base,
            work: Notify::new(),
        }
    }

    /// The contender of a ticket whose session is alive.
    pub(crate) fn alive(&self, holder: HolderId) -> Option<Contender> {
        let alive = |entry: &mut Entry<Position>| entry.data.alive().cloned();
        self.tickets.with(holder, alive)?
    }

    /// The contender of a ticket, whether its session is alive or not.
    pub(crate) fn known(&self, holder: HolderId) -> Option<Contender> {
        let known = |entry: &mut Entry<Position>| entry.data.contender.clone();
        self.tickets.with(holder, known)?
    }

    /// Gives a ticket a key under a session: its first one, or a new one after a session that ended. `None`
    /// if this session has just ended.
    pub(crate) fn enter(
        &self,
        ticket: &Ticket,
        session: &Arc<Session>,
        directory: &str,
    ) -> Result<Option<Contender>, BackendError> {
        let released = || {
            let why = "the ticket was released before";
            fault("attempt", Outcome::Rejected, why)
        };
        if lock(&self.tombstones).contains(ticket.holder) {
            return Err(released());
        }
        let entered = self.tickets.with(ticket.holder, |entry| {
            let number = session.join(directory.len())?;
            let contender = Contender {
                session: Arc::clone(session),
                directory: directory.into(),
                key: contender(directory, session.id(), number).into(),
                number,
                created: None,
                held: false,
                reported: session.confirmed(),
            };
            entry.data.enter(contender.clone());
            entry.restart();
            Some(contender)
        });
        entered.ok_or_else(released)
    }

    /// A request that may create or delete the key is about to be written.
    pub(crate) fn request(&self, holder: HolderId) {
        self.tickets.with(holder, |entry| entry.data.request());
    }

    /// A request of an attempt was answered, with the ticket's own key if it exists.
    pub(crate) fn tried(&self, at: &Contender, holder: HolderId, tried: &mut Tried) {
        self.update(holder, |entry| {
            entry.data.answered();
            let Some(contender) = &mut entry.data.contender else {
                return;
            };
            if tried.created.is_none() || at.created.is_some_and(|_| at.created != tried.created) {
                return;
            }
            contender.created = tried.created;
            contender.held |= tried.first;
            contender.reported = contender.session.confirmed();
            let own = |(key, created): &Key| *key == at.key && Some(*created) == tried.created;
            // A listing without the own key does not show the keys before it.
            if let Some(listing) = tried.listing.take_if(|list| list.keys.iter().any(own)) {
                entry.data.enqueued(listing, tried.first);
            }
        });
    }

    /// Forgets a ticket for good, after the answer to its release.
    pub(crate) fn released(&self, holder: HolderId) {
        self.tickets.with(holder, |entry| {
            entry.data.answered();
            entry.data.unwatch(holder, &mut lock(&self.watches));
        });
        drop(self.tickets.forget(holder));
        lock(&self.tombstones).insert(holder);
    }

    /// The number of tickets and of watched keys.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.tickets.len(), lock(&self.watches).len())
    }

    /// The key right before that of a ticket, as far as is known.
    pub(crate) fn nearest(&self, holder: HolderId) -> Option<Key> {
        self.tickets.with(holder, |entry| entry.data.nearest())?
    }

    /// The holds of a session, with their keys.
    pub(crate) fn holds(&self, lease: i64) -> Vec<(HolderId, Arc<str>)> {
        let mut holds = Vec::new();
        self.tickets.for_each(|holder, entry| {
            let at = entry.data.contender.as_ref();
            if let Some(at) = at.filter(|at| at.held && at.session.id() == lease)
                && entry.data.lost.is_none()
            {
                holds.push((holder, Arc::clone(&at.key)));
            }
        });
        holds
    }

    /// The key of a ticket is gone.
    pub(crate) fn lose(&self, holder: HolderId, key: &str, reason: LossReason) {
        self.tickets.with(holder, |entry| {
            let at = entry.data.contender.as_ref();
            if at.is_some_and(|at| &*at.key == key) {
                lose(entry, reason);
            }
        });
    }

    /// A session has ended, and all its keys with it.
    pub(crate) fn session_ended(&self, lease: i64) {
        self.tickets.for_each(|_, entry| {
            let at = entry.data.contender.as_ref();
            if at.is_some_and(|at| at.session.id() == lease) {
                lose(entry, LossReason::SessionEnded);
            }
        });
    }

    /// The result of a renewal after a keep-alive; `None` if the ticket does not hold.
    pub(crate) fn renewed(&self, holder: HolderId) -> Option<Renewal> {
        let renewed = |entry: &mut Entry<Position>| {
            let alive = entry.data.alive().is_some_and(|at| at.held);
            let at = entry.data.contender.as_mut()?;
            at.reported = at.session.confirmed();
            alive.then(|| Renewal::Renewed {
                since: Some(at.reported),
                ttl: at.session.ttl(),
            })
        };
        self.tickets.with(holder, renewed)?
    }

    /// Opens the wake-ups of a ticket; `None` if it has no key.
    pub(crate) fn watch(&self, ticket: &Ticket) -> Option<TicketWatch<Position>> {
        self.known(ticket.holder)?;
        let watch = self.tickets.watch(ticket);
        self.update(ticket.holder, |_| {});
        Some(watch)
    }

    /// The wake-ups of a ticket are closed. Its keys stay watched if others are open.
    pub(crate) fn unwatch(&self, holder: HolderId, watch: TicketWatch<Position>) {
        self.tickets.with(holder, |entry| {
            entry.data.unwatch(holder, &mut lock(&self.watches));
        });
        drop(watch);
        self.update(holder, |_| {});
    }

    /// A read has ended. Another one follows if its revision is too old.
    pub(crate) fn read(&self, read: &Read, listing: Listing) {
        self.update(read.holder, |entry| entry.data.end_read(read, listing));
    }

    /// Whether the result of a read is still wanted.
    pub(crate) fn is_reading(&self, read: &Read) -> bool {
        let reading = |entry: &mut Entry<Position>| entry.data.is_reading(read);
        self.tickets.with(read.holder, reading) == Some(true)
    }

    /// Changes what is known of the watches, then of the tickets that it returns.
    pub(crate) fn report(&self, change: impl FnOnce(&mut KeyWatches) -> Vec<HolderId>) {
        let holders = change(&mut lock(&self.watches));
        for holder in holders {
            self.update(holder, |_| {});
        }
    }

    /// Asks the watches.
    pub(crate) fn with_watches<R>(&self, ask: impl FnOnce(&mut KeyWatches) -> R) -> R {
        ask(&mut lock(&self.watches))
    }

    /// Changes what is known of a ticket, and then does what follows from that.
    fn update(&self, holder: HolderId, change: impl FnOnce(&mut Entry<Position>)) {
        let updated = self.tickets.with(holder, |entry| {
            change(entry);
            if !entry.is_watched() || entry.data.lost.is_some() {
                return false;
            }
            let mut watches = lock(&self.watches);
            let news = entry.data.update(holder, &mut watches);
            match news {
                Some(News::Turn) => self.grant(entry),
                Some(News::Gone) => lose(entry, LossReason::Superseded),
                None => {}
            }
            watches.has_work()
        });
        if updated == Some(true) {
            self.work.notify_one();
        }
    }

    fn grant(&self, entry: &mut Entry<Position>) {
        let Some(at) = &mut entry.data.contender else {
            return;
        };
        at.held = true;
        if let Some(token) = at.created.and_then(|it| token(it, self.token_base)) {
            let grant = at.session.grant(token);
            entry.granted(None, grant);
        }
    }

    /// Forgets everything, because the store is closed. The keys do not leave their sessions, as if the
    /// process had died: holds that are left end with their leases.
    pub(crate) fn close(&self) {
        let mut left = Vec::new();
        self.tickets
            .for_each(|_, entry| left.extend(entry.data.contender.take()));
        lock(&self.watches).clear();
        // The last reference to a session ends its task.
        drop(left);
    }
}

fn lose(entry: &mut Entry<Position>, reason: LossReason) {
    if entry.data.lost.is_none() {
        entry.data.lost = Some(reason);
        entry.lost(reason);
    }
}
