//! The tickets of a store: what is known of them, and their wake-ups.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::TxnResponse;
use lockkit_core::contract::{Renewal, Ticket};
use lockkit_core::store::waiters::{Entry, TicketWatch};
use lockkit_core::store::{Backoff, lock};
use lockkit_core::{BackendError, FencingToken, HolderId, LossReason};
use tokio::time::{sleep, timeout};

use crate::error::{BACKEND, Result};
use crate::keys::contender;
use crate::link::PAUSES;
use crate::position::{News, Position};
use crate::queue::{Contender, Key, Listing, look};
use crate::session::{Lease, Session};
use crate::shared::Shared;
use crate::watches::KeyWatches;

/// How long the server is asked why a key is gone: two requests. Then the loss is reported without it.
const ASK_WHY: Duration = Duration::from_millis(200);
/// The longest time between the end of the keys of a lease and that of the lease.
const KEYS_BEFORE_LEASE: Duration = Duration::from_millis(20);

impl Shared {
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
    ) -> Result<Option<Contender>> {
        let released = || BackendError::released(BACKEND, "attempt");
        if self.tickets.is_refused(ticket.holder) {
            return Err(released());
        }
        let directory = self.layout.directory(&ticket.name);
        let entered = self.tickets.with(ticket.holder, |entry| {
            let number = session.lease.join(directory.len())?;
            let contender = Contender {
                session: Arc::clone(session),
                key: contender(&directory, ticket.mode, session.lease.id, number).into(),
                number,
                created: None,
                held: false,
                reported: session.lease.confirmed(),
            };
            entry.data.enter(contender.clone());
            entry.restart();
            Some(contender)
        });
        entered.ok_or_else(released)
    }

    /// A request of an attempt was answered, with the ticket's own key if it exists.
    pub(crate) fn tried(
        self: &Arc<Self>,
        at: &Contender,
        holder: HolderId,
        (listing, holds): (Listing, bool),
    ) {
        self.update(holder, |entry| {
            entry.data.unanswered = entry.data.unanswered.saturating_sub(1);
            let own = listing.created;
            let is_new = at.created.is_none();
            if let Some(contender) = &mut entry.data.contender
                && own.is_some()
                && (is_new || own == at.created)
            {
                contender.created = own;
                contender.held |= holds;
                contender.reported = contender.session.lease.confirmed();
                if is_new {
                    entry.data.enqueued(listing, holds);
                }
            }
        });
    }

    /// Forgets a ticket for good, after the answer to its release, or because its client cannot release it any more.
    /// Then its key may stay, as after a release without an answer: the task of its session deletes it.
    pub(crate) fn forget(&self, holder: HolderId, is_released: bool) {
        if let Some(mut forgotten) = self.tickets.forget(holder) {
            let position = &mut forgotten.data;
            position.unanswered = match is_released {
                true => position.unanswered.saturating_sub(1),
                false => position.unanswered + 1,
            };
            position.watch(Vec::new(), holder, &mut lock(&self.watches));
        }
        self.tickets.refuse(holder);
    }

    /// The holds of a session, with their keys.
    pub(crate) fn holds(&self, lease: i64) -> Vec<(HolderId, Arc<str>)> {
        let mut holds = Vec::new();
        self.tickets.for_each(|holder, entry| {
            let at = entry.data.alive();
            let at = at.filter(|at| at.held && at.session.lease.id == lease);
            holds.extend(at.map(|at| (holder, Arc::clone(&at.key))));
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

    /// The server says that a session has ended, and all its keys with it.
    pub(crate) fn session_ended(&self, lease: &Lease) {
        lease.end();
        self.tickets.for_each(|_, entry| {
            let at = entry.data.contender.as_ref();
            if at.is_some_and(|at| at.session.lease.id == lease.id) {
                lose(entry, LossReason::SessionEnded);
            }
        });
    }

    /// The result of a renewal after a keep-alive.
    pub(crate) fn renewed(&self, holder: HolderId) -> Renewal {
        let renewed = |entry: &mut Entry<Position>| {
            let Position {
                contender, lost, ..
            } = &mut entry.data;
            match (contender, lost) {
                (Some(at), None) if at.held && at.session.lease.is_alive() => {
                    at.reported = at.session.lease.confirmed();
                    Renewal::Renewed {
                        since: Some(at.reported),
                        ttl: at.session.lease.ttl,
                    }
                }
                (_, Some(LossReason::SessionEnded)) => Renewal::SessionEnded,
                _ => Renewal::NotHeld,
            }
        };
        let renewed = self.tickets.with(holder, renewed);
        renewed.unwrap_or(Renewal::NotHeld)
    }

    /// Opens the wake-ups of a ticket; `None` if it has no key.
    pub(crate) fn watch(self: &Arc<Self>, ticket: &Ticket) -> Option<TicketWatch<Position>> {
        self.known(ticket.holder)?;
        let watch = self.tickets.watch(ticket);
        self.update(ticket.holder, |_| {});
        Some(watch)
    }

    /// Changes what is known of the watches, then of the tickets that it returns.
    pub(crate) fn report(self: &Arc<Self>, change: impl FnOnce(&mut KeyWatches) -> Vec<HolderId>) {
        let holders = change(&mut lock(&self.watches));
        for holder in holders {
            self.update(holder, |_| {});
        }
    }

    /// Changes what is known of a ticket, and then does what follows from that.
    fn update(self: &Arc<Self>, holder: HolderId, change: impl FnOnce(&mut Entry<Position>)) {
        let (mut unknown, mut gone) = (None, None);
        let wanted = self.tickets.with(holder, |entry| {
            change(entry);
            if !entry.is_watched() || entry.data.lost.is_some() {
                return false;
            }
            let mut watches = lock(&self.watches);
            match entry.data.update(holder, &mut watches) {
                Some(News::Turn) => self.grant(entry),
                Some(News::Gone) => {
                    entry.data.lost = Some(LossReason::Superseded);
                    gone = entry.data.contender.clone();
                }
                Some(News::Unknown(own)) => unknown = Some(own),
                None => {}
            }
            watches.is_wanted()
        });
        if wanted == Some(true) {
            self.wanted.notify_one();
        }
        if let Some(own) = unknown {
            // Detached: it ends with the watch of its ticket.
            drop(self.runtime.spawn(Arc::clone(self).read(holder, own)));
        }
        if let Some(at) = gone {
            // Detached: it ends by itself, soon.
            drop(self.runtime.spawn(Arc::clone(self).report_loss(holder, at)));
        }
    }

    /// Reports that the key of a ticket is gone: that alone, or the whole session.
    async fn report_loss(self: Arc<Self>, holder: HolderId, at: Contender) {
        let asked = async {
            // A server deletes the keys of a lease before the lease itself.
            for pause in [KEYS_BEFORE_LEASE, Duration::ZERO] {
                // With a shorter limit, a slow answer would close the connection, which may be well.
                let remaining = self.link.remaining("watch", at.session.lease.id).await;
                if matches!(remaining, Ok(None)) {
                    return self.session_ended(&at.session.lease);
                }
                sleep(pause).await;
            }
        };
        // No answer in time means that nothing is known.
        drop(timeout(ASK_WHY, asked).await);
        let reason = match at.session.lease.is_alive() {
            true => LossReason::Superseded,
            false => LossReason::SessionEnded,
        };
        self.tickets.with(holder, |entry| {
            let own = entry.data.contender.as_ref();
            // A ticket that has got another key meanwhile has not lost that one.
            if own.is_some_and(|own| own.key == at.key) {
                entry.data.lost = Some(reason);
                entry.lost(reason);
            }
        });
    }

    /// Reads the keys before that of a waiter.
    async fn read(self: Arc<Self>, holder: HolderId, own: Key) {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let is_wanted = |entry: &mut Entry<Position>| entry.data.is_reading(&own);
        while self.tickets.with(holder, is_wanted) == Some(true) {
            let answer = self.link.txn("watch", &look(&own)).await.ok();
            let read = |it: TxnResponse| Listing::read(&it.op_responses(), it.header());
            if let Some(listing) = answer.and_then(read) {
                self.update(holder, |entry| entry.data.end_read(&own, listing));
                return;
            }
            sleep(backoff.pause()).await;
        }
    }

    /// The token of a hold by a key: the revision that created it. INV-4.
    pub(crate) fn token(&self, created: i64) -> FencingToken {
        FencingToken::of_revision(created, self.token_base)
    }

    fn grant(&self, entry: &mut Entry<Position>) {
        if let Some(at) = &mut entry.data.contender
            && let Some(created) = at.created
        {
            at.held = true;
            let grant = at.session.lease.grant(self.token(created));
            entry.granted(None, grant);
        }
    }
}

fn lose(entry: &mut Entry<Position>, reason: LossReason) {
    if entry.data.lost.is_none() {
        entry.data.lost = Some(reason);
        entry.lost(reason);
    }
}
