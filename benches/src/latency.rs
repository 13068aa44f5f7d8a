//! Latencies that do not leave out what was waited for.
//!
//! A loop that sends the next request after a response sends fewer while the store stalls, and so the
//! stall counts once: "coordinated omission". Here a request is due at a time that was fixed
//! before, and its latency counts from then on, also if it was sent late because the one before it
//! took long.

use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::{Instant, sleep_until};

use crate::failure::Outcome;

/// An hour: nothing here takes longer.
const LONGEST: u64 = 3_600_000_000_000;

/// Three significant digits, from a nanosecond to an hour.
pub(crate) fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST, 3)?)
}

pub(crate) fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    histogram.saturating_record(nanos.max(1));
}

/// Seconds at this part of all values.
pub(crate) fn at(histogram: &Histogram<u64>, part: f64) -> f64 {
    Duration::from_nanos(histogram.value_at_quantile(part)).as_secs_f64()
}

/// Carries out `request` at every multiple of `interval` until `span` is over.
pub(crate) async fn at_a_fixed_rate<F>(
    interval: Duration,
    span: Duration,
    into: &mut Histogram<u64>,
    request: impl Fn() -> F,
) -> Outcome
where
    F: Future<Output = Outcome>,
{
    let start = Instant::now();
    let mut due = start;
    while due < start + span {
        wait_until(due).await;
        request().await?;
        record(into, due.elapsed());
        due += interval;
    }
    Ok(())
}

/// The timer of the runtime counts in milliseconds: the last of them are spent yielding.
async fn wait_until(due: Instant) {
    const COARSE: Duration = Duration::from_millis(3);
    if due.duration_since(Instant::now()) > COARSE {
        sleep_until(due - COARSE).await;
    }
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}

/// The curve of a histogram: at each part of all values, seconds. Closer and closer to the end, for as
/// long as there are values.
pub(crate) fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    // Eight points for each decade of what is still above.
    let parts = (0..=40).map(|step| 1.0 - 10_f64.powf(-f64::from(step) / 8.0));
    let count = histogram.len();
    #[expect(clippy::cast_precision_loss, reason = "it only ends the curve")]
    let known = parts.take_while(|part| (1.0 - part) * count as f64 >= 1.0);
    known.map(|part| (part, at(histogram, part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn a_stall_counts_for_every_request_that_was_due_in_it() {
        let mut seen = histogram().unwrap();
        let number = Cell::new(0);
        let (interval, span) = (Duration::from_millis(10), Duration::from_millis(1000));
        at_a_fixed_rate(interval, span, &mut seen, || async {
            number.set(number.get() + 1);
            // The tenth takes half a second, the others none.
            if number.get() == 10 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(seen.len(), 100);
        let late = seen.count_between(10_000_000, u64::MAX);
        // More on a busy machine, never fewer.
        assert!(late >= 48, "{late} of 100 were late");
        assert!(at(&seen, 1.0) >= 0.5);
    }

    #[test]
    fn the_curve_ends_where_there_are_no_more_values() {
        let mut seen = histogram().unwrap();
        for value in 1..=1000 {
            seen.record(value * 1000).unwrap();
        }
        let curve = curve(&seen);
        assert_eq!(curve[0].0, 0.0);
        let last = curve.last().unwrap();
        assert!((0.998..0.9991).contains(&last.0), "{last:?}");
        assert!(curve.windows(2).all(|two| two[0].1 <= two[1].1));
    }
}
