//! What must be true of all guards at any moment.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use lockkit_core::clock::{Clock, Moment};
use lockkit_core::contract::Mode;
use lockkit_core::{FencingToken, Guard, MultiGuard};

use super::NAMES;

/// What a task holds: one lock, or both.
pub(crate) enum Held {
    One(Guard),
    Both(MultiGuard),
}

impl Held {
    pub(crate) fn guards(&self) -> &[Guard] {
        match self {
            Self::One(guard) => std::slice::from_ref(guard),
            Self::Both(guard) => guard.guards(),
        }
    }
}

pub(crate) fn mode(guard: &Guard) -> Mode {
    guard.ticket().mode
}

/// The tokens of one name.
#[derive(Default)]
struct Tokens {
    given: HashSet<FencingToken>,
    largest: Option<FencingToken>,
    of_exclusive: Option<FencingToken>,
}

/// Sees every guard and knows what must be true of all of them at any moment.
pub(crate) struct Referee {
    held: Mutex<Vec<Arc<Held>>>,
    tokens: Mutex<[Tokens; 2]>,
    pub(crate) grants: Mutex<Vec<(Moment, FencingToken)>>,
    clock: Arc<dyn Clock>,
}

impl Referee {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            held: Mutex::default(),
            tokens: Mutex::default(),
            grants: Mutex::default(),
            clock,
        }
    }

    /// New holds: their tokens are new and larger than those of all holds that they exclude, and no guard
    /// of those passes its check.
    pub(crate) fn granted(self: &Arc<Self>, held: Held) -> Believer {
        for guard in held.guards() {
            self.count(guard);
            let others = self.held();
            let others = others.iter().flat_map(|held| held.guards());
            let excluded = others.filter(|other| {
                other.name() == guard.name()
                    && (mode(guard).is_exclusive() || mode(other).is_exclusive())
            });
            for other in excluded {
                assert!(
                    other.check().is_err(),
                    "two guards of `{}` pass check()",
                    guard.name()
                );
                let ready = pin!(other.lost()).poll(&mut Context::from_waker(Waker::noop()));
                assert!(
                    matches!(ready, Poll::Ready(_)),
                    "taken over before lost() was ready"
                );
            }
        }
        self.believes(held)
    }

    fn count(&self, guard: &Guard) {
        let (name, token) = (guard.name().as_str(), guard.token());
        let mut tokens = self.tokens.lock().unwrap();
        let tokens = &mut tokens[usize::from(name == NAMES[1])];
        assert!(tokens.given.insert(token), "token {token} twice");
        let exclusive = mode(guard).is_exclusive();
        let before = match exclusive {
            true => tokens.largest,
            // Readers may see their grants in another order.
            false => tokens.of_exclusive,
        };
        assert!(Some(token) > before, "token {token} after {before:?}");
        tokens.largest = tokens.largest.max(Some(token));
        if exclusive {
            tokens.of_exclusive = Some(token);
        }
        self.grants.lock().unwrap().push((self.clock.now(), token));
    }

    /// From now on the referee sees it.
    pub(crate) fn believes(self: &Arc<Self>, held: Held) -> Believer {
        let held = Arc::new(held);
        self.held().push(Arc::clone(&held));
        self.look();
        Believer {
            referee: Arc::clone(self),
            held: Some(held),
        }
    }

    /// Also after a task has failed in here.
    fn held(&self) -> MutexGuard<'_, Vec<Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, held: &Arc<Held>) {
        self.held().retain(|other| !Arc::ptr_eq(other, held));
    }

    /// The guards of one name that pass their check fit each other.
    pub(crate) fn look(&self) {
        let held = self.held();
        for name in NAMES {
            let guards = held.iter().flat_map(|held| held.guards());
            let believers: Vec<Mode> = guards
                .filter(|guard| guard.name().as_str() == name && guard.check().is_ok())
                .map(mode)
                .collect();
            // In other words than the store's, which calls `Mode::fits`.
            let room = match believers.iter().any(|mode| mode.is_exclusive()) {
                true => 1,
                false => believers.iter().map(|mode| mode.room()).max().unwrap_or(0),
            };
            assert!(
                believers.len() <= usize::try_from(room).unwrap(),
                "guards of `{name}` pass check() and do not fit: {believers:?}"
            );
        }
    }
}

/// Guards that the referee sees until their task ends them or is aborted.
pub(crate) struct Believer {
    referee: Arc<Referee>,
    held: Option<Arc<Held>>,
}

impl Believer {
    pub(crate) fn guards(&self) -> &[Guard] {
        self.held.as_ref().unwrap().guards()
    }

    pub(crate) fn end(mut self) -> Held {
        let held = self.held.take().unwrap();
        self.referee.forget(&held);
        Arc::into_inner(held).unwrap()
    }
}

impl Drop for Believer {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            self.referee.forget(held);
        }
    }
}
