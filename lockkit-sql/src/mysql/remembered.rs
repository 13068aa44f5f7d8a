//! What was seen of the rows of locks, so that the shorter statement is sent where it will do.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockkit_core::LockName;

/// Of so many names at most.
const MOST: usize = 65_536;

/// What is remembered of names; it may be forgotten at any time.
#[derive(Debug)]
pub(crate) struct Remembered<T>(Mutex<HashMap<LockName, T>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy> Remembered<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: &LockName) -> Option<T> {
        self.lock().get(name).copied()
    }

    pub(crate) fn set(&self, name: &LockName, seen: T) {
        let mut names = self.lock();
        if let Some(known) = names.get_mut(name) {
            *known = seen;
            return;
        }
        if names.len() >= MOST {
            names.clear();
        }
        names.insert(name.clone(), seen);
    }
}
