//! Locking of short critical sections.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of a thread that held it.
///
/// For critical sections that cannot leave the data half changed: a panic of another thread is then no
/// reason to fail. INV-8: `Drop` never panics.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
