//! The locks whose keys are watched.

use std::collections::HashMap;
use std::sync::Arc;

use lockkit_core::HolderId;
use lockkit_core::backend::Ticket;
use tokio::sync::Notify;

use super::near::NEEDED;
use super::place::Place;
use super::view::{Phase, Scope, View};
use super::{Desk, EtcdWatch, State};
use crate::contenders::{CROWD, Deletions, Gone, Key};
use crate::mutant::EtcdMutant;

/// A watch that is to be asked for: of one key of a lock, or of all.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) watch: i64,
    pub(crate) directory: Arc<str>,
    pub(crate) key: Option<Arc<str>>,
}

/// A lock whose keys are to be read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    number: i64,
    pub(crate) directory: Arc<str>,
    /// Those that were created later do not count.
    pub(crate) until: Option<i64>,
    /// What went with this revision is known: an older state would show it again.
    pub(crate) least: i64,
}

impl Desk {
    /// Opens the wake-ups of a ticket; `None` if the ticket is not known.
    pub(crate) fn watch(self: &Arc<Self>, ticket: &Ticket) -> Option<EtcdWatch> {
        let mut state = self.lock();
        let State {
            tickets,
            views,
            ended,
            ..
        } = &mut *state;
        let place = tickets.get_mut(&ticket.holder)?;
        let bell = Arc::new(Notify::new());
        place.bell = Some(Arc::clone(&bell));
        let directory = Arc::clone(&place.at.directory);
        let view = views.entry(Arc::clone(&directory));
        let view = view.or_insert_with(View::new);
        view.enter(ticket.holder, place, ended);
        let lacks = view
            .settle(ticket.holder, place, ended, self.broken)
            .is_err();
        if lacks || matches!(view.phase, Phase::Wanted) || !ended.is_empty() {
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

    /// How many keys of a lock an attempt needs to know, those that were created last: no more than are
    /// watched, if there was a crowd of late.
    pub(crate) fn listed(&self, directory: &str) -> i64 {
        let state = self.lock();
        match state.views.get(directory) {
            Some(view) if !view.tells_all() => NEEDED,
            _ => CROWD + 1,
        }
    }

    pub(super) fn unwatch(&self, holder: HolderId, directory: &str) {
        let mut state = self.lock();
        if let Some(view) = state.views.get_mut(directory) {
            view.leave(holder);
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

    /// The watches that nobody has asked the server for, with new numbers.
    pub(crate) fn take_wanted(&self) -> Vec<Asking> {
        let mut state = self.lock();
        let State {
            views,
            watched,
            numbers,
            ..
        } = &mut *state;
        let mut wanted = Vec::new();
        for (directory, view) in views {
            if !matches!(view.phase, Phase::Wanted) {
                continue;
            }
            view.phase = Phase::Asked;
            let mut number = |key: Option<&Arc<str>>, former: i64| {
                *numbers += 1;
                let asking = Asking {
                    watch: *numbers,
                    directory: Arc::clone(directory),
                    key: key.cloned(),
                };
                watched.remove(&former);
                watched.insert(*numbers, asking.clone());
                wanted.push(asking);
                *numbers
            };
            match &mut view.scope {
                Scope::All(watch) => *watch = number(None, *watch),
                Scope::Near(near) => near.ask(|key, former| number(Some(key), former)),
            }
        }
        wanted
    }

    /// No events come any more, of this watch or of any.
    pub(crate) fn closed(&self, watch: Option<i64>) {
        let mut state = self.lock();
        let State {
            tickets,
            views,
            watched,
            ..
        } = &mut *state;
        let closed = watch.map(|watch| watched.remove(&watch));
        for (directory, view) in views {
            let key = match &closed {
                None => None,
                Some(Some(asking)) if *directory == asking.directory && view.is_watch(asking) => {
                    asking.key.as_deref()
                }
                Some(_) => continue,
            };
            view.phase = Phase::Wanted;
            if let Scope::Near(near) = &mut view.scope {
                near.closed(key);
            }
            for holder in &view.watchers {
                if let Some(place) = tickets.get_mut(holder) {
                    place.before = None;
                }
            }
        }
    }

    /// Deletions of a watch come from now on, those after a revision: its keys are to be read.
    pub(crate) fn opened(&self, watch: i64, revision: i64) {
        let mut state = self.lock();
        let Some((asking, view)) = state.by_watch(watch) else {
            return;
        };
        if let (Scope::Near(near), Some(key)) = (&mut view.scope, &asking.key) {
            near.opened(key, revision);
            if !near.is_open() {
                return;
            }
        }
        if matches!(view.phase, Phase::Wanted | Phase::Asked) {
            view.unread();
        }
    }

    /// The locks whose keys are to be read, and that nobody reads.
    pub(crate) fn take_unread(&self) -> Vec<Reading> {
        let mut state = self.lock();
        let State {
            tickets,
            views,
            numbers,
            ..
        } = &mut *state;
        let reading = |(directory, view): (&Arc<str>, &mut View)| {
            let Phase::Unread(kept) = &mut view.phase else {
                return None;
            };
            *numbers += 1;
            let told = kept.iter().map(|gone| gone.revision).max();
            view.phase = Phase::Reading(std::mem::take(kept), *numbers);
            let created = |holder| {
                tickets
                    .get(holder)
                    .and_then(|place: &Place| place.at.created)
            };
            let until = match (&view.scope, view.watchers.iter().next()) {
                (Scope::Near(_), Some(holder)) => created(holder),
                _ => None,
            };
            let opened = match &view.scope {
                Scope::Near(near) => near.opened_at(),
                Scope::All(_) => 0,
            };
            Some(Reading {
                number: *numbers,
                directory: Arc::clone(directory),
                until,
                least: opened.max(told.unwrap_or(0)).max(until.unwrap_or(0)),
            })
        };
        views.iter_mut().filter_map(reading).collect()
    }

    /// The keys were read at a revision; there may be `more`, which were created before these.
    pub(crate) fn read(&self, reading: &Reading, revision: i64, keys: &[Key], more: bool) {
        let mut state = self.lock();
        let State {
            tickets,
            views,
            ended,
            ..
        } = &mut *state;
        let Some(view) = views.get_mut(&reading.directory) else {
            return;
        };
        let kept = match &mut view.phase {
            Phase::Reading(kept, number) if *number == reading.number => std::mem::take(kept),
            _ => return,
        };
        let mut deletions = Deletions::since(revision);
        for gone in &kept {
            deletions.push(gone.clone());
        }
        view.phase = Phase::Known(deletions);
        let watchers: Vec<HolderId> = view.watchers.iter().copied().collect();
        let mut lacks = false;
        for holder in watchers {
            let Some(place) = tickets.get_mut(&holder) else {
                continue;
            };
            // Its key is newer than what was read.
            let newer = |until| place.at.created.is_some_and(|created| created > until);
            if reading.until.is_some_and(newer) {
                view.unread();
                lacks = true;
                continue;
            }
            place.read(revision, keys, more, self.broken);
            let before = place.before.as_ref();
            if before.is_some() && view.aim(place, before, revision, ended).is_err() {
                place.before = None;
                lacks = true;
            } else if view.hear(place, &kept, self.broken) {
                view.unread();
                lacks = true;
            }
            // Answers that have come since the read was carried out.
            if place.listed.is_some() {
                lacks |= view.settle(holder, place, ended, self.broken).is_err();
            }
        }
        if lacks || !ended.is_empty() {
            self.wanted.notify_one();
        }
    }

    /// Whether a read is still wanted.
    pub(crate) fn is_reading(&self, reading: &Reading) -> bool {
        let state = self.lock();
        let view = state.views.get(&reading.directory);
        view.is_some_and(
            |view| matches!(view.phase, Phase::Reading(_, number) if number == reading.number),
        )
    }

    /// Keys are gone, all of those that a watch tells of and that went with their revisions.
    pub(crate) fn deleted(&self, watch: i64, all: Vec<Gone>) {
        let mut state = self.lock();
        let State {
            tickets,
            views,
            watched,
            ..
        } = &mut *state;
        let Some((_, view)) = view_of(watched, views, watch) else {
            return;
        };
        match &mut view.phase {
            Phase::Unread(kept) | Phase::Reading(kept, _) => kept.extend(all),
            Phase::Known(_) if self.broken.is(EtcdMutant::WakeUpLost) => {}
            Phase::Known(_) => {
                let mut lacks = false;
                for holder in &view.watchers {
                    if let Some(place) = tickets.get_mut(holder) {
                        lacks |= view.hear(place, &all, self.broken);
                    }
                }
                if let Phase::Known(deletions) = &mut view.phase {
                    for gone in all {
                        deletions.push(gone);
                    }
                }
                if lacks {
                    view.unread();
                    self.wanted.notify_one();
                }
            }
            Phase::Wanted | Phase::Asked => {}
        }
    }

    /// Takes out the watches that nobody has needed for a while.
    pub(crate) fn take_ended(&self) -> Vec<i64> {
        let mut state = self.lock();
        let mut gone = std::mem::take(&mut state.ended);
        for (_, view) in state.views.extract_if(|_, view| view.is_idle()) {
            gone.extend(view.numbers());
        }
        gone.retain(|watch| state.watched.remove(watch).is_some());
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
    fn by_watch(&mut self, watch: i64) -> Option<(&Asking, &mut View)> {
        view_of(&self.watched, &mut self.views, watch)
    }
}

fn view_of<'a>(
    watched: &'a HashMap<i64, Asking>,
    views: &'a mut HashMap<Arc<str>, View>,
    watch: i64,
) -> Option<(&'a Asking, &'a mut View)> {
    let asking = watched.get(&watch)?;
    let view = views.get_mut(&asking.directory)?;
    view.is_watch(asking).then_some((asking, view))
}
