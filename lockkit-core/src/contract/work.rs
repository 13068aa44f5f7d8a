//! Work that a ticket carries, for the store that made it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What a store does in the very step that grants or ends the hold of a ticket, in a form that only that
/// store knows.
///
/// Two are equal if they are the same work.
#[derive(Clone)]
pub struct Work(Arc<dyn Any + Send + Sync>);

impl Work {
    /// Work of a store, which recognises it by its type.
    #[must_use]
    pub fn new<T: Any + Send + Sync>(work: Arc<T>) -> Self {
        Self(work)
    }

    /// The work, if it is a `T`.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Work {}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").finish_non_exhaustive()
    }
}
