//! When each contender had the lock, and how often it changed hands.
//!
//! A contender that acquires again directly after its release has a turn but no hand-off: locks that let
//! running contenders barge in have many turns and few hand-offs.

use rustix::time::{ClockId, clock_gettime};

/// The times of one contender's grants, by the clock that all processes of a machine share.
#[derive(Debug, Default)]
pub(crate) struct Taken(Vec<u64>);

impl Taken {
    /// Records a grant.
    pub(crate) fn now(&mut self) {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        self.0.push(seconds * 1_000_000_000 + nanos);
    }

    pub(crate) const fn count(&self) -> usize {
        self.0.len()
    }

    /// With the number of the contender.
    pub(crate) fn of(self, number: usize) -> impl Iterator<Item = (u64, usize)> {
        self.0.into_iter().map(move |time| (time, number))
    }
}

/// How often a turn belonged to a different contender than the turn before it.
pub(crate) fn hand_offs(turns: &mut [(u64, usize)]) -> usize {
    turns.sort_unstable();
    let pairs = turns.windows(2);
    pairs.filter(|pair| pair[0].1 != pair[1].1).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquiring_again_is_no_hand_off() {
        // Three by the first, one by the second in between, whichever process said so first.
        let mut turns = vec![(10, 0), (20, 0), (40, 0), (30, 1)];
        assert_eq!(hand_offs(&mut turns), 2);
        assert_eq!(hand_offs(&mut [(1, 0), (2, 0), (3, 0)]), 0);
        assert_eq!(hand_offs(&mut [(1, 0), (2, 1), (3, 2)]), 2);
        assert_eq!(hand_offs(&mut []), 0);
    }

    #[test]
    fn times_are_in_order() {
        let mut taken = Taken::default();
        taken.now();
        taken.now();
        assert_eq!(taken.count(), 2);
        let times: Vec<_> = taken.of(7).collect();
        assert!(times[0].0 > 0 && times[0] <= times[1] && times[1].1 == 7);
    }
}
