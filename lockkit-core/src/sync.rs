//! Locking of our own short critical sections.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose critical sections cannot leave its data half changed, so that a panic of
/// another thread while it held the mutex is no reason to fail here. INV-8: `Drop` never panics.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
