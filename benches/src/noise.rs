//! How far a figure can be trusted: pure functions of what the rounds measured.

use serde::{Deserialize, Serialize};

/// A ratio is noisy if its interval is wider than this part of it.
pub const LIMIT: f64 = 0.15;

/// The middle of several rounds, and an interval in which the true middle lies.
///
/// # Units and shapes
/// `low` and `high` are the narrowest pair of measured values that has the true median between them
/// with a probability of at least 95 %, whatever the distribution. Below six rounds no pair does:
/// then they are the smallest and the largest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// What each round measured, in the order of the rounds.
    pub rounds: Vec<f64>,
}

impl Spread {
    /// Of all rounds; `None` if there are none.
    #[must_use]
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let cut = cut(sorted.len());
        Some(Self {
            median: median(&sorted)?,
            low: *sorted.get(cut)?,
            high: *sorted.get(sorted.len() - 1 - cut)?,
            rounds: rounds.to_vec(),
        })
    }

    /// How wide the interval is, as a part of the median.
    #[must_use]
    pub fn width(&self) -> f64 {
        if self.low == self.high {
            return 0.0;
        }
        (self.high - self.low) / self.median.abs()
    }

    /// Whether the interval is so wide that another run may well show another figure.
    ///
    /// Few rounds must agree better: half of three lie closer together than half of nine. One tells nothing.
    #[must_use]
    pub fn is_noisy(&self) -> bool {
        let limit = match self.rounds.len() {
            1 => return true,
            2..6 => LIMIT / 2.0,
            // Those of an interval that was computed are not known.
            _ => LIMIT,
        };
        // Where the median is zero it is infinite.
        let width = self.width();
        width.is_nan() || width > limit
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, upper))
}

/// How many values may be left out at each end.
///
/// With `cut` left out at each end, the true median lies outside if at most `cut` of the values fell on one
/// side of it: a binomial tail, twice.
fn cut(count: usize) -> usize {
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut outside, mut cut) = (2.0 * term, 0);
    while cut + 1 < count.div_ceil(2) {
        // The next binomial coefficient.
        let done = u32::try_from(cut).unwrap_or(u32::MAX);
        let left = u32::try_from(count - cut).unwrap_or(u32::MAX);
        term *= f64::from(left) / (f64::from(done) + 1.0);
        outside += 2.0 * term;
        if outside > 0.05 {
            break;
        }
        cut += 1;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_tables_of_order_statistics() {
        for (count, expected) in [
            (1, 0),
            (3, 0),
            (5, 0),
            (6, 0),
            (8, 0),
            (9, 1),
            (11, 1),
            (12, 2),
            (20, 5),
        ] {
            assert_eq!(cut(count), expected, "{count} rounds");
        }
    }

    #[test]
    fn one_wild_round_of_nine_does_not_move_the_interval() {
        let calm = [1.0, 1.01, 0.99, 1.02, 1.0, 0.98, 1.01, 1.0, 9.0];
        let spread = Spread::of(&calm).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (0.99, 1.0, 1.02));
        assert!(!spread.is_noisy());
    }

    #[test]
    fn what_varies_by_more_than_the_limit_is_noisy() {
        let of = |rounds: &[f64]| Spread::of(rounds).unwrap().is_noisy();
        assert!(of(&[1.0, 1.1, 1.2]));
        assert!(of(&[1.0, 1.05, 1.1]), "too few for so much");
        assert!(!of(&[1.0, 1.03, 1.06]));
        assert!(!of(&[1.0, 1.02, 1.04, 1.06, 1.08, 1.1]));
        assert!(of(&[1.0]), "one round tells nothing");
        assert!(of(&[0.0, 0.0, 1.0]), "a median of zero tells nothing");
        assert!(!of(&[0.0, 0.0, 0.0]));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(Spread::of(&[4.0, 1.0]).unwrap().median, 2.5);
    }
}
