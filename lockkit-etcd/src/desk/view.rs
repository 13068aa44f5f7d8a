//! What is known of the keys of one lock, and which of their deletions are told.

use std::collections::HashSet;
use std::time::Duration;

use lockkit_core::HolderId;
use tokio::time::Instant;

use super::near::{Aim, Near, is_crowd};
use super::place::Place;
use super::views::Asking;
use crate::contenders::{Before, Deletions, Gone};
use crate::mutant::{Broken, EtcdMutant};

/// How long a lock is watched after its last waiter here.
const LINGER: Duration = Duration::from_secs(5);

/// What is known of the keys of one lock.
#[derive(Debug)]
pub(super) struct View {
    pub(super) scope: Scope,
    pub(super) phase: Phase,
    pub(super) watchers: HashSet<HolderId>,
    idle_since: Instant,
}

/// Which deletions are told.
#[derive(Debug)]
pub(super) enum Scope {
    /// All of the lock, by one watch on the present stream.
    All(i64),
    /// Those of single keys: there is one who waits, behind many.
    Near(Near),
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Nobody has asked the server for the watch, or for one of them.
    Wanted,
    /// The server was asked.
    Asked,
    /// The server tells deletions, and the keys are to be read. The deletions are kept until then.
    Unread(Vec<Gone>),
    /// The keys are being read, by a read of this number.
    Reading(Vec<Gone>, i64),
    /// Everything is known up to the last deletion that is told.
    Known(Deletions),
}

/// The server is to be asked for something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacking;

impl View {
    pub(super) fn new() -> Self {
        Self {
            scope: Scope::All(0),
            phase: Phase::Wanted,
            watchers: HashSet::new(),
            idle_since: Instant::now(),
        }
    }

    /// A ticket is watched for. Who is alone here and behind many hears of those right before it, and
    /// else of the whole lock.
    pub(super) fn enter(&mut self, holder: HolderId, place: &Place, ended: &mut Vec<i64>) {
        let near = matches!(self.scope, Scope::Near(_));
        // A holder is content with whatever tells of its own key.
        let crowd = is_crowd(place.all, near) || (near && place.at.held);
        match self.watchers.is_empty() && crowd {
            true if !near => self.change(Scope::Near(Near::default()), ended),
            false if near => self.change(Scope::All(0), ended),
            _ => {}
        }
        self.watchers.insert(holder);
    }

    pub(super) fn leave(&mut self, holder: HolderId) {
        self.watchers.remove(&holder);
        self.idle_since = Instant::now();
    }

    /// Whether nobody has needed it for a while.
    pub(super) fn is_idle(&self) -> bool {
        self.watchers.is_empty() && self.idle_since.elapsed() >= LINGER
    }

    fn change(&mut self, scope: Scope, ended: &mut Vec<i64>) {
        ended.extend(self.numbers());
        self.scope = scope;
        self.phase = Phase::Wanted;
    }

    /// Whether the deletions of all keys of the lock are told.
    pub(super) const fn tells_all(&self) -> bool {
        matches!(self.scope, Scope::All(_))
    }

    /// The numbers of its watches, as far as they were asked for.
    pub(super) fn numbers(&self) -> Vec<i64> {
        match &self.scope {
            Scope::All(watch) => vec![*watch],
            Scope::Near(near) => near.numbers().collect(),
        }
    }

    /// Finds out who stands before a ticket that is watched for: with what its answer has listed, and
    /// what was deleted since.
    pub(super) fn settle(
        &mut self,
        holder: HolderId,
        place: &mut Place,
        ended: &mut Vec<i64>,
        broken: Broken,
    ) -> Result<(), Lacking> {
        if !self.watchers.contains(&holder) || place.before.is_some() {
            return Ok(());
        }
        let created = place.at.created;
        self.aim(place, place.listed.as_ref(), created.unwrap_or(0), ended)?;
        let Phase::Known(deletions) = &self.phase else {
            return Ok(());
        };
        let listed = place.listed.take();
        let enough = |before: &Before| before.is_complete() || !self.tells_all();
        let listed = created.zip(listed.filter(enough));
        let Some((after, before)) =
            listed.and_then(|(created, before)| Some((deletions.after(created)?, before)))
        else {
            return Err(self.unread());
        };
        place.before = Some(before);
        match self.hear(place, &after, broken) {
            true => Err(self.unread()),
            false => Ok(()),
        }
    }

    /// Has what a waiter needs watched, where that depends on who stands before it.
    pub(super) fn aim(
        &mut self,
        place: &Place,
        before: Option<&Before>,
        revision: i64,
        ended: &mut Vec<i64>,
    ) -> Result<(), Lacking> {
        let Scope::Near(near) = &mut self.scope else {
            return Ok(());
        };
        let aim = near.aim(&place.at.key, before, revision, ended);
        let unopened = matches!(self.phase, Phase::Wanted | Phase::Asked);
        match aim {
            Aim::Told if !unopened => return Ok(()),
            Aim::Told | Aim::Untold => return Err(self.unread()),
            Aim::Unopened => self.phase = Phase::Wanted,
            Aim::SameLease => self.change(Scope::All(0), ended),
        }
        Err(Lacking)
    }

    /// The keys are to be read, if they are not anyway: what is to be told is told from now on.
    pub(super) fn unread(&mut self) -> Lacking {
        match &mut self.phase {
            Phase::Unread(_) | Phase::Reading(..) => {}
            Phase::Wanted | Phase::Asked => self.phase = Phase::Unread(Vec::new()),
            Phase::Known(deletions) => {
                let deletions = std::mem::replace(deletions, Deletions::since(0));
                self.phase = Phase::Unread(deletions.into_latest());
            }
        }
        Lacking
    }

    /// Tells a ticket of keys that are gone. Answers whether one right before it was among them, and who
    /// is left is to be read.
    ///
    /// Decides only when it has heard of all: a decision in the middle of a revision could grant a lock
    /// to the dead.
    pub(super) fn hear(&self, place: &mut Place, all: &[Gone], broken: Broken) -> bool {
        let mut right_before = false;
        for gone in all {
            let removed = place.deleted(gone, broken);
            right_before |=
                removed && matches!(&self.scope, Scope::Near(near) if near.is_nearest(gone));
            if broken.is(EtcdMutant::GrantInMidRevision) {
                place.look();
            }
        }
        place.look();
        right_before
            && place
                .before
                .as_ref()
                .is_some_and(|before| !before.is_empty())
    }

    /// Whether a watch is the present one, of all keys or of this one.
    pub(super) fn is_watch(&self, asking: &Asking) -> bool {
        match (&self.scope, &asking.key) {
            (Scope::All(watch), None) => *watch == asking.watch,
            (Scope::Near(near), Some(key)) => near.is_watch(key, asking.watch),
            _ => false,
        }
    }
}
