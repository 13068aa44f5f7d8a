//! Delivers what is delayed.
//!
//! A thread of its own and not a timer of the runtime: those round up to whole milliseconds, which
//! is a tenth of the delays that round trips are counted with.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use lockkit_core::clock::{BootClock, Clock, Moment};
use tokio::sync::mpsc::UnboundedSender;

/// A thread that sleeps wakes up so late: it sleeps less, and stays awake for the rest.
const LATE: Duration = Duration::from_micros(250);

/// Some bytes, or the end of the stream.
pub(super) type Parcel = Option<Vec<u8>>;

struct Item {
    due: Moment,
    number: u64,
    parcel: Parcel,
    to: UnboundedSender<Parcel>,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[derive(Default)]
struct Bag {
    items: BinaryHeap<Reverse<Item>>,
    number: u64,
    closed: bool,
}

/// The thread and what it carries.
pub(super) struct Postman {
    bag: Arc<(Mutex<Bag>, Condvar)>,
}

impl Postman {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let bag: Arc<(Mutex<Bag>, Condvar)> = Arc::default();
        let carried = Arc::clone(&bag);
        std::thread::Builder::new()
            .name("proxy-postman".into())
            .spawn(move || walk(&carried.0, &carried.1))?;
        Ok(Self { bag })
    }

    /// Hands `parcel` to `to` at `due`. Parcels of one moment keep their order.
    pub(super) fn post(&self, due: Moment, parcel: Parcel, to: UnboundedSender<Parcel>) {
        let mut bag = self.bag.0.lock().unwrap_or_else(PoisonError::into_inner);
        bag.number += 1;
        let number = bag.number;
        bag.items.push(Reverse(Item {
            due,
            number,
            parcel,
            to,
        }));
        self.bag.1.notify_one();
    }
}

impl Drop for Postman {
    fn drop(&mut self) {
        let mut bag = self.bag.0.lock().unwrap_or_else(PoisonError::into_inner);
        bag.closed = true;
        self.bag.1.notify_one();
    }
}

fn walk(carried: &Mutex<Bag>, woken: &Condvar) {
    let mut bag = carried.lock().unwrap_or_else(PoisonError::into_inner);
    while !bag.closed {
        let now = BootClock::default().now();
        let wait = match bag.items.peek() {
            None => Duration::from_secs(3600),
            Some(Reverse(item)) => item.due.since(now),
        };
        if wait.is_zero() {
            if let Some(Reverse(item)) = bag.items.pop() {
                // The connection may be gone; then nobody wants it.
                drop(item.to.send(item.parcel));
            }
        } else if wait > LATE {
            bag = woken
                .wait_timeout(bag, wait - LATE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        } else {
            drop(bag);
            std::thread::yield_now();
            bag = carried.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}
