//! The pauses of clients that poll, and the same as an option of a URL: short, so that cases end soon. A place in a
//! queue lasts three of the longest, which is more than a busy machine stands still.

use std::time::Duration;

use lockkit_core::PollRange;

/// In milliseconds, the shortest and the longest.
const PAUSES: [u64; 2] = [5, 400];

pub(super) fn pauses() -> PollRange {
    let [min, max] = PAUSES.map(Duration::from_millis);
    PollRange::new(min, max)
}

/// `poll=5ms..400ms`.
pub(super) fn poll_option() -> String {
    let [min, max] = PAUSES;
    format!("poll={min}ms..{max}ms")
}
