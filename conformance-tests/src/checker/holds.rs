//! The holds that a history contains.

use std::collections::HashMap;

use crate::history::{Event, History, Op, Phase};

/// The events of one hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hold<'a> {
    /// The request.
    pub invoke: &'a Event,
    /// The answer to the request.
    pub answer: Option<&'a Event>,
    /// The first look at which the guard stood.
    pub first: Option<&'a Event>,
    /// The last look at which the guard stood.
    pub last: Option<&'a Event>,
    /// The first and the last look in each mode: a writer may become a reader.
    pub(super) looks: Vec<(&'a Event, &'a Event)>,
    /// The guard's word that the hold is gone.
    pub lost: Option<&'a Event>,
    /// The request to give it back.
    pub release: Option<&'a Event>,
    /// Reentries that were given.
    pub reentries: Vec<&'a Event>,
}

impl<'a> Hold<'a> {
    const fn new(invoke: &'a Event) -> Self {
        Self {
            invoke,
            answer: None,
            first: None,
            last: None,
            looks: Vec::new(),
            lost: None,
            release: None,
            reentries: Vec::new(),
        }
    }

    /// The grant and its token, if the lock was given.
    #[must_use]
    pub fn grant(&self) -> Option<(&'a Event, u64)> {
        let answer = self.answer.filter(|event| event.phase == Phase::Ok)?;
        Some((answer, answer.token?))
    }

    fn add(&mut self, event: &'a Event) {
        match (event.op, event.phase) {
            (Op::Acquire, Phase::Ok | Phase::Fail) => self.answer = Some(event),
            (Op::Check, Phase::Ok) => {
                self.first.get_or_insert(event);
                self.last = Some(event);
                match self.looks.last_mut() {
                    Some((first, last)) if first.room == event.room => *last = event,
                    _ => self.looks.push((event, event)),
                }
            }
            (Op::Lost, _) => {
                self.lost.get_or_insert(event);
            }
            (Op::Release, Phase::Invoke) => {
                self.release.get_or_insert(event);
            }
            (Op::Reenter, Phase::Ok) => self.reentries.push(event),
            _ => {}
        }
    }
}

/// All holds, grouped by lock and in the order of their requests.
pub(crate) fn by_lock(history: &History) -> Vec<Vec<Hold<'_>>> {
    let mut holds: Vec<Hold<'_>> = Vec::new();
    let mut index: HashMap<(u32, u64), usize> = HashMap::new();
    for event in history.events() {
        let key = (event.process, event.hold);
        if event.op == Op::Acquire && event.phase == Phase::Invoke {
            index.insert(key, holds.len());
            holds.push(Hold::new(event));
        } else if let Some(&place) = index.get(&key) {
            holds[place].add(event);
        }
    }
    let mut locks: HashMap<&str, usize> = HashMap::new();
    let mut grouped: Vec<Vec<Hold<'_>>> = Vec::new();
    for hold in holds {
        let place = *locks.entry(&hold.invoke.lock).or_insert_with(|| {
            grouped.push(Vec::new());
            grouped.len() - 1
        });
        grouped[place].push(hold);
    }
    grouped
}
