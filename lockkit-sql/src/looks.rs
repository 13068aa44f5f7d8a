//! How long a step goes on looking at a row that is free and that somebody has locked.

use std::iter::once;
use std::time::Duration;

/// What to wait before each further look: nothing before the first, then from a millisecond on twice as
/// long each time, 63 ms in all. Longer than any step of ours has a row locked, or a scan that comes by.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send {
    once(Duration::ZERO).chain((0..6).map(|look| Duration::from_millis(1 << look)))
}
