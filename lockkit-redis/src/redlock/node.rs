//! One of the servers of a store.

use crate::backend::RedisStore;
use crate::route::Route;

/// A store of its own, in one server.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) store: RedisStore,
    pub(crate) route: Route,
}

impl Node {
    pub(crate) fn of(store: RedisStore) -> Option<Self> {
        let route = Route::to(store.masters.links().pop()?);
        Some(Self { store, route })
    }
}
