//! The locks whose keys are watched.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::HolderId;
use lockkit_core::backend::Ticket;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::place::Place;
use super::{Desk, EtcdWatch, State};
use crate::contenders::{Deletions, Gone, Key};
use crate::mutant::{Broken, EtcdMutant};

/// How long a lock is watched after its last waiter here.
const LINGER: Duration = Duration::from_secs(5);

/// So many deletions may be told in that time: where others go on, each would cost the server and this
/// process some time for nothing.
const UNHEEDED: usize = 16;

/// What is known of the keys of one lock.
#[derive(Debug)]
pub(super) struct View {
    /// Its watch on the present stream.
    watch: i64,
    phase: Phase,
    watchers: HashSet<HolderId>,
    idle_since: Instant,
    /// How many deletions were told since, with nobody here who waits.
    unheeded: usize,
}

#[derive(Debug)]
enum Phase {
    /// Nobody has asked the server for the watch.
    Wanted,
    /// The server was asked.
    Asked,
    /// The server tells deletions, and the keys are to be read. The deletions are kept until then.
    Unread(Vec<Gone>),
    /// The keys are being read.
    Reading(Vec<Gone>),
    /// Everything is known up to the last deletion.
    Known(Deletions),
}

/// The keys have to be read: what is remembered does not reach back far enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread;

/// A watch that is to be asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) watch: i64,
    pub(crate) directory: Arc<str>,
}

impl View {
    /// Finds out who stands before a ticket that is watched for: with what its answer has listed, and
    /// what was deleted since.
    pub(super) fn settle(
        &mut self,
        holder: HolderId,
        place: &mut Place,
        broken: Broken,
    ) -> Result<(), Unread> {
        let Phase::Known(deletions) = &mut self.phase else {
            return Ok(());
        };
        if !self.watchers.contains(&holder) || place.before.is_some() {
            return Ok(());
        }
        let listed = place.at.created.zip(place.listed.take());
        if let Some((created, before)) = listed
            && let Some(after) = deletions.after(created)
        {
            place.before = Some(before);
            for gone in after {
                place.deleted(gone, broken);
            }
            place.look();
            return Ok(());
        }
        let deletions = std::mem::replace(deletions, Deletions::since(0));
        self.phase = Phase::Unread(deletions.into_latest());
        Err(Unread)
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
                unheeded: 0,
            }
        });
        view.watchers.insert(ticket.holder);
        view.unheeded = 0;
        if view.settle(ticket.holder, place, self.broken).is_err() {
            self.wanted.notify_one();
        }
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
            place.before = None;
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
        let State { tickets, views, .. } = &mut *state;
        let all = views.values_mut();
        for view in all.filter(|view| watch.is_none_or(|watch| watch == view.watch)) {
            view.phase = Phase::Wanted;
            for holder in &view.watchers {
                if let Some(place) = tickets.get_mut(holder) {
                    place.before = None;
                }
            }
        }
    }

    /// Deletions of a watch come from now on: its keys are to be read.
    pub(crate) fn opened(&self, watch: i64) {
        let mut state = self.lock();
        if let Some(view) = state.by_watch(watch)
            && matches!(view.phase, Phase::Asked)
        {
            view.phase = Phase::Unread(Vec::new());
        }
    }

    /// The locks whose keys are to be read, and that nobody reads.
    pub(crate) fn take_unread(&self) -> Vec<Asking> {
        let mut state = self.lock();
        let reading = |(directory, view): (&Arc<str>, &mut View)| {
            let Phase::Unread(kept) = &mut view.phase else {
                return None;
            };
            view.phase = Phase::Reading(std::mem::take(kept));
            Some(Asking {
                watch: view.watch,
                directory: Arc::clone(directory),
            })
        };
        state.views.iter_mut().filter_map(reading).collect()
    }

    /// The keys were read at a revision.
    pub(crate) fn read(&self, watch: i64, revision: i64, keys: &[Key]) {
        let mut state = self.lock();
        let State {
            tickets,
            views,
            watched,
            ..
        } = &mut *state;
        let Some(view) = view_of(watched, views, watch) else {
            return;
        };
        let Phase::Reading(kept) = &mut view.phase else {
            return;
        };
        let kept = std::mem::take(kept);
        let mut deletions = Deletions::since(revision);
        for holder in &view.watchers {
            if let Some(place) = tickets.get_mut(holder) {
                place.read(revision, keys, self.broken);
                for gone in &kept {
                    place.deleted(gone, self.broken);
                }
            }
        }
        for gone in kept {
            deletions.push(gone);
        }
        view.phase = Phase::Known(deletions);
        // Answers that have come since the read was carried out.
        let watchers: Vec<HolderId> = view.watchers.iter().copied().collect();
        let mut unread = false;
        for holder in watchers {
            if let Some(place) = tickets.get_mut(&holder) {
                if place.listed.is_some() {
                    unread |= view.settle(holder, place, self.broken).is_err();
                }
                place.look();
            }
        }
        if unread {
            self.wanted.notify_one();
        }
    }

    /// Whether the keys of a watch are still to be read.
    pub(crate) fn is_reading(&self, watch: i64) -> bool {
        let mut state = self.lock();
        state
            .by_watch(watch)
            .is_some_and(|view| matches!(view.phase, Phase::Reading(_)))
    }

    /// Keys are gone, all of those that went with their revisions.
    pub(crate) fn deleted(&self, watch: i64, all: Vec<Gone>) {
        let mut state = self.lock();
        let State {
            tickets,
            views,
            watched,
            ..
        } = &mut *state;
        let Some(view) = view_of(watched, views, watch) else {
            return;
        };
        if view.watchers.is_empty() {
            view.unheeded = view.unheeded.saturating_add(all.len());
        }
        let mut all_places = |view: &View, each: &dyn Fn(&mut Place)| {
            for holder in &view.watchers {
                if let Some(place) = tickets.get_mut(holder) {
                    each(place);
                }
            }
        };
        match &mut view.phase {
            Phase::Unread(kept) | Phase::Reading(kept) => kept.extend(all),
            Phase::Known(_) if self.broken.is(EtcdMutant::WakeUpLost) => {}
            Phase::Known(_) => {
                for gone in all {
                    all_places(view, &|place| place.deleted(&gone, self.broken));
                    if self.broken.is(EtcdMutant::GrantInMidRevision) {
                        all_places(view, &Place::look);
                    }
                    if let Phase::Known(deletions) = &mut view.phase {
                        deletions.push(gone);
                    }
                }
                // Only now: a decision in the middle of a revision could grant a lock to the dead.
                all_places(view, &Place::look);
            }
            Phase::Wanted | Phase::Asked => {}
        }
    }

    /// Takes out the watches that nobody has needed for a while.
    pub(crate) fn take_idle(&self) -> Vec<i64> {
        let now = Instant::now();
        let idle = |_: &Arc<str>, view: &mut View| {
            let long = view.idle_since + LINGER <= now || view.unheeded >= UNHEEDED;
            view.watchers.is_empty() && long
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
    fn by_watch(&mut self, watch: i64) -> Option<&mut View> {
        view_of(&self.watched, &mut self.views, watch)
    }
}

fn view_of<'a>(
    watched: &HashMap<i64, Arc<str>>,
    views: &'a mut HashMap<Arc<str>, View>,
    watch: i64,
) -> Option<&'a mut View> {
    let view = views.get_mut(watched.get(&watch)?)?;
    (view.watch == watch).then_some(view)
}
