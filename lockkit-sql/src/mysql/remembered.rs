//! What was seen of the rows of locks, so that the shorter statement is sent where it will do.

use std::collections::HashMap;
use std::sync::Mutex;

use lockkit_core::LockName;
use lockkit_core::store::lock;

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
    pub(crate) fn get(&self, name: &LockName) -> Option<T> {
        lock(&self.0).get(name).copied()
    }

    pub(crate) fn set(&self, name: &LockName, seen: T) {
        let mut names = lock(&self.0);
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
