//! Guarded writes, also under holds that have ended: the store must refuse those.

use std::pin::Pin;
use std::time::Duration;

use lockkit_core::{Guard, LockClient};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Worker;
use crate::failure::Outcome;
use crate::history::{Op, Phase, now};

/// A guarded write that is under way: whether it was carried out, or refused to a stale holder.
pub type Writing<'a> = Pin<Box<dyn Future<Output = Outcome<bool>> + Send + 'a>>;

/// Does a guarded write under the hold of a guard.
pub type Writer = for<'a> fn(&'a LockClient, &'a Guard) -> Writing<'a>;

/// Most holds are short.
pub(super) const SHORT: Duration = Duration::from_millis(10);
/// Some last as long as a renewed lease may, so that they are renewed and can be stopped.
pub(super) const LONG: Duration = Duration::from_secs(1);

impl Worker {
    /// Takes the lock, looks at it and writes, twice, and gives it back, until `span` is over. The
    /// write is done whatever the look says, as a program would that never looks.
    pub async fn write(&self, client: &LockClient, writer: Writer, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            let hold = self.recorder.next_hold();
            let Some(guard) = self.acquire(hold).await else {
                sleep(SHORT).await;
                continue;
            };
            // Ends with the turn: a released guard reports no loss.
            let mut watch = JoinSet::new();
            watch.spawn(self.watch(hold, &guard));
            for stay in [Duration::ZERO, stay()] {
                sleep(stay).await;
                self.check(hold, &guard);
                self.write_once(client, writer, hold, &guard).await;
            }
            self.release(hold, guard).await;
        }
    }

    /// One write under a hold, which may have ended.
    pub(super) async fn write_once(
        &self,
        client: &LockClient,
        writer: Writer,
        hold: u64,
        guard: &Guard,
    ) {
        self.note(hold, Op::Write, Phase::Invoke);
        let written = writer(client, guard).await;
        let phase = match written {
            Ok(true) => Phase::Ok,
            Ok(false) => Phase::Fail,
            Err(_) => Phase::Info,
        };
        let mut event = self.event(now(), hold, Op::Write, phase);
        if let Err(failure) = written {
            event = event.with_note(failure.message());
        }
        self.recorder.push(event.with_token(guard.token().get()));
    }
}

fn stay() -> Duration {
    let longest = if fastrand::u8(..32) == 0 { LONG } else { SHORT };
    longest.mul_f64(fastrand::f64())
}
