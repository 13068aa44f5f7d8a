//! The locks whose keys are watched.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::HolderId;
use lockkit_core::backend::Ticket;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Desk, EtcdWatch, State};
use crate::contenders::{Change, Contenders};
use crate::mutant::EtcdMutant;

/// How long a lock is watched after its last waiter here.
const LINGER: Duration = Duration::from_secs(5);

/// What is known of the keys of one lock.
#[derive(Debug)]
pub(super) struct View {
    /// Its watch on the present stream.
    watch: i64,
    phase: Phase,
    watchers: HashSet<HolderId>,
    idle_since: Instant,
}

#[derive(Debug)]
enum Phase {
    /// Nobody has asked the server for the watch.
    Wanted,
    /// The server was asked.
    Asked,
    /// The server tells events, and the keys are being read. The events are kept until then.
    Reading(Vec<(i64, Change)>, i64),
    /// Everything is known up to the last event.
    Known(Contenders),
}

/// A watch that is to be asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) watch: i64,
    pub(crate) directory: Arc<str>,
}

impl View {
    pub(super) const fn contenders(&self) -> Option<&Contenders> {
        match &self.phase {
            Phase::Known(contenders) => Some(contenders),
            _ => None,
        }
    }
}

impl Desk {
    /// Opens the wake-ups of a ticket; `None` if the ticket is not known.
    pub(crate) fn watch(self: &Arc<Self>, ticket: &Ticket) -> Option<EtcdWatch> {
        let mut state = self.lock();
        let State { tickets, views, .. } = &mut *state;
        let place = tickets.get_mut(&ticket.holder)?;
        let bell = Arc::new(Notify::new());
        place.bell = Some(Arc::clone(&bell));
        let directory = Arc::clone(&place.at.directory);
        let view = views.entry(Arc::clone(&directory)).or_insert_with(|| {
            self.wanted.notify_one();
            View {
                watch: 0,
                phase: Phase::Wanted,
                watchers: HashSet::new(),
                idle_since: Instant::now(),
            }
        });
        view.watchers.insert(ticket.holder);
        drop(state);
        Some(EtcdWatch {
            desk: Arc::clone(self),
            holder: ticket.holder,
            directory,
            bell,
        })
    }

    pub(super) fn unwatch(&self, holder: HolderId, directory: &str) {
        let mut state = self.lock();
        if let Some(view) = state.views.get_mut(directory) {
            view.watchers.remove(&holder);
            view.idle_since = Instant::now();
        }
        if let Some(place) = state.tickets.get_mut(&holder) {
            place.bell = None;
        }
    }

    /// A loss that was taken is to be told again.
    pub(super) fn untell(&self, holder: HolderId) {
        if let Some(place) = self.lock().tickets.get_mut(&holder) {
            place.told_loss = false;
        }
    }

    /// The locks that nobody has asked the server to watch, with new numbers of watches.
    pub(crate) fn take_wanted(&self) -> Vec<Asking> {
        let mut state = self.lock();
        let State {
            views,
            watches,
            watched,
            ..
        } = &mut *state;
        let wanted = views
            .iter_mut()
            .filter(|(_, view)| matches!(view.phase, Phase::Wanted));
        wanted
            .map(|(directory, view)| {
                *watches += 1;
                watched.remove(&view.watch);
                watched.insert(*watches, Arc::clone(directory));
                view.watch = *watches;
                view.phase = Phase::Asked;
                Asking {
                    watch: *watches,
                    directory: Arc::clone(directory),
                }
            })
            .collect()
    }

    /// No events come any more, of this watch or of any.
    pub(crate) fn closed(&self, watch: Option<i64>) {
        let mut state = self.lock();
        let all = state.views.values_mut();
        for view in all.filter(|view| watch.is_none_or(|watch| watch == view.watch)) {
            view.phase = Phase::Wanted;
        }
    }

    /// Events of a watch come from now on. Answers whose keys are to be read.
    pub(crate) fn opened(&self, watch: i64) -> Option<Asking> {
        let mut state = self.lock();
        let (directory, view) = state.by_watch(watch)?;
        if !matches!(view.phase, Phase::Asked) {
            return None;
        }
        view.phase = Phase::Reading(Vec::new(), 0);
        Some(Asking { watch, directory })
    }

    /// The keys were read.
    pub(crate) fn read(&self, watch: i64, mut contenders: Contenders) {
        let mut state = self.lock();
        let Some((directory, view)) = state.by_watch(watch) else {
            return;
        };
        let Phase::Reading(kept, seen) = &mut view.phase else {
            return;
        };
        for (revision, change) in kept.drain(..) {
            contenders.apply(revision, change);
        }
        contenders.seen_up_to(*seen);
        view.phase = Phase::Known(contenders);
        self.look(&mut state, &directory);
    }

    /// Whether the keys of a watch are still to be read.
    pub(crate) fn is_reading(&self, watch: i64) -> bool {
        let mut state = self.lock();
        state
            .by_watch(watch)
            .is_some_and(|(_, view)| matches!(view.phase, Phase::Reading(..)))
    }

    /// Events have come, all of those of their revisions.
    pub(crate) fn events(&self, watch: i64, events: Vec<(i64, Change)>) {
        let Some(last) = events.last().map(|(revision, _)| *revision) else {
            return;
        };
        let mut state = self.lock();
        let Some((directory, view)) = state.by_watch(watch) else {
            return;
        };
        match &mut view.phase {
            Phase::Reading(kept, seen) => {
                kept.extend(events);
                *seen = last;
            }
            Phase::Known(_) if self.broken.is(EtcdMutant::WakeUpLost) => {}
            Phase::Known(_) => {
                for (revision, change) in events {
                    state.apply(&directory, revision, change);
                    if self.broken.is(EtcdMutant::GrantInMidRevision) {
                        self.look(&mut state, &directory);
                    }
                }
                // Only now: a decision in the middle of a revision could grant a lock to the dead.
                if let Some(view) = state.views.get_mut(&directory)
                    && let Phase::Known(contenders) = &mut view.phase
                {
                    contenders.seen_up_to(last);
                }
                self.look(&mut state, &directory);
            }
            Phase::Wanted | Phase::Asked => {}
        }
    }

    /// Tells the tickets of a lock what its keys mean for them.
    fn look(&self, state: &mut State, directory: &str) {
        let State { tickets, views, .. } = state;
        let Some(view) = views.get(directory) else {
            return;
        };
        for holder in &view.watchers {
            if let Some(place) = tickets.get_mut(holder) {
                place.look(view, self.broken);
            }
        }
    }

    /// Takes out the watches that nobody has needed for a while.
    pub(crate) fn take_idle(&self) -> Vec<i64> {
        let now = Instant::now();
        let idle = |_: &Arc<str>, view: &mut View| {
            view.watchers.is_empty() && view.idle_since + LINGER <= now
        };
        let mut state = self.lock();
        let gone: Vec<i64> = state
            .views
            .extract_if(idle)
            .map(|(_, view)| view.watch)
            .collect();
        for watch in &gone {
            state.watched.remove(watch);
        }
        gone
    }

    /// Whether a watch was asked for that the server has not answered.
    pub(crate) fn is_unanswered(&self) -> bool {
        let state = self.lock();
        let mut views = state.views.values();
        views.any(|view| matches!(view.phase, Phase::Asked))
    }

    /// Whether somebody waits for events.
    pub(crate) fn has_views(&self) -> bool {
        !self.lock().views.is_empty()
    }
}

impl State {
    fn by_watch(&mut self, watch: i64) -> Option<(Arc<str>, &mut View)> {
        let directory = Arc::clone(self.watched.get(&watch)?);
        let view = self.views.get_mut(&directory)?;
        (view.watch == watch).then_some((directory, view))
    }

    fn apply(&mut self, directory: &str, revision: i64, change: Change) {
        if let Some(view) = self.views.get_mut(directory)
            && let Phase::Known(contenders) = &mut view.phase
        {
            contenders.apply(revision, change);
        }
    }
}
