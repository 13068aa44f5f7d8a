//! Bytes that wait for their delay.
//!
//! A thread delivers them, and not a timer of the runtime: such timers round up to whole milliseconds, a
//! tenth of the delays with which round trips are counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use lockkit_core::clock::{BootClock, Clock, Moment};
use tokio::sync::mpsc::UnboundedSender;

/// A sleeping thread wakes up late by about this much. It sleeps less, and spins for the rest.
const LATE: Duration = Duration::from_micros(250);

/// Some bytes, or the end of the stream.
pub(super) type Chunk = Option<Vec<u8>>;

struct Item {
    due: Moment,
    number: u64,
    chunk: Chunk,
    to: UnboundedSender<Chunk>,
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
struct Queue {
    items: BinaryHeap<Reverse<Item>>,
    number: u64,
    closed: bool,
}

/// The thread and its queue.
pub(super) struct DelayQueue {
    queue: Arc<(Mutex<Queue>, Condvar)>,
}

impl DelayQueue {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let queue: Arc<(Mutex<Queue>, Condvar)> = Arc::default();
        let queued = Arc::clone(&queue);
        std::thread::Builder::new()
            .name("proxy-delay".into())
            .spawn(move || deliver(&queued.0, &queued.1))?;
        Ok(Self { queue })
    }

    /// Sends `chunk` to `to` at `due`. Chunks with the same time keep their order.
    pub(super) fn send_at(&self, due: Moment, chunk: Chunk, to: UnboundedSender<Chunk>) {
        let mut queue = self.queue.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.number += 1;
        let number = queue.number;
        queue.items.push(Reverse(Item {
            due,
            number,
            chunk,
            to,
        }));
        self.queue.1.notify_one();
    }
}

impl Drop for DelayQueue {
    fn drop(&mut self) {
        let mut queue = self.queue.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.closed = true;
        self.queue.1.notify_one();
    }
}

fn deliver(queued: &Mutex<Queue>, woken: &Condvar) {
    let mut queue = queued.lock().unwrap_or_else(PoisonError::into_inner);
    while !queue.closed {
        let now = BootClock::default().now();
        let wait = match queue.items.peek() {
            None => Duration::from_secs(3600),
            Some(Reverse(item)) => item.due.since(now),
        };
        if wait.is_zero() {
            if let Some(Reverse(item)) = queue.items.pop() {
                // The connection may be gone.
                drop(item.to.send(item.chunk));
            }
        } else if wait > LATE {
            queue = woken
                .wait_timeout(queue, wait - LATE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        } else {
            drop(queue);
            std::thread::yield_now();
            queue = queued.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}
