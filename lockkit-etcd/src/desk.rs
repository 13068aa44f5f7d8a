//! Tickets and what is known of them, from before their first attempt is written to their release.

mod near;
mod place;
mod verdict;
mod view;
mod views;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkit_core::backend::{Renewal, Ticket, Tombstones, Wake};
use lockkit_core::clock::Moment;
use lockkit_core::{HolderId, LossReason};
use tokio::sync::Notify;

pub(crate) use self::near::NEEDED;
use self::place::Place;
pub(crate) use self::verdict::token;
use self::view::View;
pub(crate) use self::views::{Asking, Reading};
pub(crate) use self::watch::EtcdWatch;
use crate::contenders::{Key, Listed};
use crate::keys::{contender, number};
use crate::mutant::{Broken, EtcdMutant};
use crate::session::{Session, Shared};

/// About how long a key is behind its directory, with what a message adds.
const KEY: usize = 40;

/// Where tickets stand, and where the events of their locks arrive.
#[derive(Debug)]
pub(crate) struct Desk {
    state: Mutex<State>,
    broken: Broken,
    /// What is added to a revision to make it a token.
    token_base: u64,
    /// Rings when a lock is to be watched.
    pub(crate) wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    tickets: HashMap<HolderId, Place>,
    /// The locks whose keys are watched, by what their keys begin with.
    views: HashMap<Arc<str>, View>,
    /// The watches that the server was asked for, by their numbers.
    watched: HashMap<i64, Asking>,
    /// Those that are not needed any more.
    ended: Vec<i64>,
    tombstones: Tombstones,
    /// Numbers the watches and the reads of this store object.
    numbers: i64,
}

/// Where a ticket stands at the server.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) session: Arc<Session>,
    pub(crate) directory: Arc<str>,
    pub(crate) key: Arc<str>,
    /// The number of the key under its lease.
    pub(crate) number: u64,
    /// The revision of its key, if an answer or an event has told it.
    pub(crate) created: Option<i64>,
    pub(crate) held: bool,
    /// Until when its holder was told that the lease is confirmed.
    pub(crate) told: Moment,
}

impl Desk {
    pub(crate) fn new(broken: Broken, token_base: u64) -> Self {
        Self {
            state: Mutex::default(),
            broken,
            token_base,
            wanted: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a ticket stands whose session lives.
    pub(crate) fn standing(&self, holder: HolderId) -> Option<Standing> {
        let state = self.lock();
        let place = state.tickets.get(&holder)?;
        let stands = place.lost.is_none() && place.at.session.lives();
        stands.then(|| place.at.clone())
    }

    /// Whether the store knows the ticket, be its session alive or not.
    pub(crate) fn known(&self, holder: HolderId) -> Option<Standing> {
        let state = self.lock();
        state.tickets.get(&holder).map(|place| place.at.clone())
    }

    /// Gives a ticket a key under a session: its first one, or a new one after a session that ended.
    /// `None` if the ticket was released, or the session has ended.
    pub(crate) fn enter(
        &self,
        ticket: &Ticket,
        session: &Arc<Session>,
        directory: &str,
    ) -> Result<Standing, Refused> {
        let mut state = self.lock();
        if state.tombstones.contains(ticket.holder)
            && !self.broken.is(EtcdMutant::ReleasedTicketForgotten)
        {
            return Err(Refused::Released);
        }
        let Some(number) = session.join(directory.len() + KEY) else {
            return Err(Refused::Ended);
        };
        let key = contender(directory, session.lease(), number);
        let at = Standing {
            session: Arc::clone(session),
            directory: directory.into(),
            key: key.into(),
            number,
            created: None,
            held: false,
            told: session.base(),
        };
        match state.tickets.get_mut(&ticket.holder) {
            Some(place) => {
                place.leave();
                place.moved(at.clone());
            }
            None => {
                let place = Place::new(at.clone());
                state.tickets.insert(ticket.holder, place);
            }
        }
        Ok(at)
    }

    /// A request that may create or delete the key is about to be written.
    pub(crate) fn writing(&self, holder: HolderId) {
        if let Some(place) = self.lock().tickets.get_mut(&holder) {
            place.unanswered += 1;
        }
    }

    /// It was answered. A mere try that found the lock held is forgotten, if nothing of it can still
    /// arrive.
    pub(crate) fn answered(&self, holder: HolderId, found: Found<'_>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let State {
            tickets,
            views,
            ended,
            ..
        } = &mut *state;
        let Some(place) = tickets.get_mut(&holder) else {
            return;
        };
        place.unanswered = place.unanswered.saturating_sub(1);
        match found {
            Found::Key {
                created,
                first,
                listed,
            } => {
                place.at.created = Some(created);
                place.at.held |= first;
                place.at.told = place.at.session.base();
                if let Some(listed) = listed {
                    place.list(listed);
                }
                if let Some(view) = views.get_mut(&place.at.directory) {
                    let lacks = view.settle(holder, place, ended, self.broken).is_err();
                    if lacks || !ended.is_empty() {
                        self.wanted.notify_one();
                    }
                }
            }
            Found::Nothing => {}
        }
        if place.at.created.is_none() && place.unanswered == 0 {
            state.remove(holder);
        }
    }

    /// It failed without an effect, as the server says. Who hears so does not release a ticket that was
    /// never answered: it is forgotten, unless an earlier request of it may still arrive. Its number is
    /// never used again, so that its key would be found and deleted if there was one all the same.
    pub(crate) fn failed(&self, holder: HolderId) {
        let mut state = self.lock();
        let place = state.tickets.get(&holder);
        if place.is_some_and(|place| place.at.created.is_none() && place.unanswered <= 1) {
            state.remove(holder);
        }
    }

    /// Forgets a ticket for good: its key is gone, as the answer to the last request says.
    pub(crate) fn released(&self, holder: HolderId) {
        let mut state = self.lock();
        if let Some(place) = state.tickets.get_mut(&holder) {
            place.unanswered = place.unanswered.saturating_sub(1);
        }
        state.remove(holder);
        state.tombstones.insert(holder);
    }

    /// Notes that nothing of an unknown ticket may come any more.
    pub(crate) fn refuse(&self, holder: HolderId) {
        self.lock().tombstones.insert(holder);
    }

    /// How many tickets and watched locks are kept.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.tickets.len(), state.views.len())
    }

    /// The key right before that of a ticket, as far as is known.
    pub(crate) fn nearest(&self, holder: HolderId) -> Option<Key> {
        let state = self.lock();
        let place = state.tickets.get(&holder)?;
        place.before.as_ref().or(place.listed.as_ref())?.last()
    }

    /// The holds of a session.
    pub(crate) fn held(&self, lease: i64) -> Vec<(HolderId, Arc<str>)> {
        let state = self.lock();
        let of_session = state.tickets.iter().filter(|(_, place)| {
            place.at.held && place.lost.is_none() && place.at.session.lease() == lease
        });
        of_session
            .map(|(holder, place)| (*holder, Arc::clone(&place.at.key)))
            .collect()
    }

    /// Those keys of a session that no ticket claims, nor ever will: one whose number is free was seen
    /// before it was deleted, and may be that of another ticket when this is acted upon.
    pub(crate) fn unclaimed(&self, session: &Shared, lease: i64, keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
        if self.broken.is(EtcdMutant::GhostKept) {
            return Vec::new();
        }
        let state = self.lock();
        let places = state.tickets.values();
        let of_session = places.filter(|place| place.at.session.lease() == lease);
        let claimed: HashSet<&[u8]> = of_session.map(|place| place.at.key.as_bytes()).collect();
        // Numbers are given and given back under the desk's lock alone.
        let free = |key: &[u8]| number(key).is_some_and(|number| session.is_free(number));
        let unclaimed = keys
            .iter()
            .filter(|key| !claimed.contains(&key[..]) && !free(key));
        unclaimed.cloned().collect()
    }

    /// A hold's key is gone.
    pub(crate) fn lose(&self, holder: HolderId, key: &str, reason: LossReason) {
        if self.broken.is(EtcdMutant::KeepAliveTakenAsProof) {
            return;
        }
        let mut state = self.lock();
        if let Some(place) = state.tickets.get_mut(&holder)
            && &*place.at.key == key
        {
            place.lose(reason);
        }
    }

    /// A hold was confirmed: the lease that it stands on; `None` if it does not stand.
    pub(crate) fn renewed(&self, holder: HolderId) -> Option<Renewal> {
        let mut state = self.lock();
        let place = state.tickets.get_mut(&holder)?;
        let stands = place.at.held && place.lost.is_none() && place.at.session.lives();
        place.at.told = place.at.session.base();
        stands.then(|| Renewal::Renewed {
            since: Some(place.at.session.since()),
            ttl: place.at.session.ttl(),
        })
    }

    /// A session has ended, and with it all that stands on it.
    pub(crate) fn session_ended(&self, lease: i64) {
        let mut state = self.lock();
        for place in state.tickets.values_mut() {
            if place.at.session.lease() == lease {
                place.lose(LossReason::SessionEnded);
            }
        }
    }

    /// Forgets everything: the store is closed.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        let tickets = std::mem::take(&mut state.tickets);
        state.views.clear();
        drop(state);
        // Outside the lock: the last one of a session ends its task.
        drop(tickets);
    }

    /// The next wake-up of a ticket; `None` while there is none.
    fn next(&self, holder: HolderId) -> Option<Wake> {
        let mut state = self.lock();
        let place = state.tickets.get_mut(&holder)?;
        place.news(self.token_base, self.broken)
    }
}

/// What an attempt has found.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// The ticket's own key, whether it is the first, and if it is new the keys at the revision that
    /// created it.
    Key {
        created: i64,
        first: bool,
        listed: Option<&'a Listed>,
    },
    /// No key of the ticket; nothing was made.
    Nothing,
}

/// Why a ticket gets no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was released before.
    Released,
    /// The session has just ended: take another.
    Ended,
}

impl State {
    fn remove(&mut self, holder: HolderId) {
        if let Some(place) = self.tickets.remove(&holder) {
            place.leave();
        }
    }
}

impl Place {
    /// Gives up its place under the session.
    fn leave(&self) {
        let (at, gone) = (&self.at, self.unanswered == 0);
        at.session.leave(at.directory.len() + KEY, at.number, gone);
    }
}
