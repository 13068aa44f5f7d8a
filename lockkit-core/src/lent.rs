//! A driver without a task of its own.
//!
//! A caller that waits alone polls the driver itself: a task would cost two changes of task for each
//! wake-up. Whoever stands behind that caller must not depend on it, and gives the driver a task.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use crate::driver::Driver;
use crate::reaper::Reaper;
use crate::sync::lock;

/// A driver in the hands of the caller that waits alone.
pub(crate) struct Lent(Arc<Mutex<Option<Driver>>>);

/// How others get at a driver that is lent.
#[derive(Default)]
pub(crate) struct Borrowed(Weak<Mutex<Option<Driver>>>);

impl Lent {
    pub(crate) fn new(driver: Driver) -> Self {
        Self(Arc::new(Mutex::new(Some(driver))))
    }

    pub(crate) fn to_others(&self) -> Borrowed {
        Borrowed(Arc::downgrade(&self.0))
    }

    /// Polls the driver for as long as it is here. What it brings comes to its queue.
    pub(crate) async fn drive(&self, reaper: &Reaper) -> Infallible {
        poll_fn(|context| {
            let mut driver = lock(&self.0);
            // Its timers do not outlive the client's runtime.
            let ended = |driver: &mut Driver| reaper.is_gone() || driver.poll(context).is_ready();
            if driver.as_mut().is_some_and(ended) {
                *driver = None;
            }
            Poll::Pending
        })
        .await
    }

    /// Takes it back, unless it has ended or somebody else has taken it.
    pub(crate) fn take(&self) -> Option<Driver> {
        lock(&self.0).take()
    }
}

impl Borrowed {
    /// Takes the driver, unless it has ended or somebody else has taken it.
    pub(crate) fn take(&self) -> Option<Driver> {
        lock(&*self.0.upgrade()?).take()
    }
}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Borrowed")
    }
}
