//! Whether two runs agree.

use super::{Figure, Report};
use crate::noise::LIMIT;

/// A ratio that differs by more than the limit, though neither run has marked it as noisy.
fn differs(one: &Figure, other: &Figure) -> Option<String> {
    let (first, second) = (one.ratio.as_ref()?.median, other.ratio.as_ref()?.median);
    let (low, high) = (first.min(second), first.max(second));
    // Two zeros agree.
    let far = high > low && high > low * (1.0 + LIMIT);
    let marked = one.noisy || other.noisy;
    (far && !marked).then(|| {
        format!(
            "{}, {}: {}: {first:.4} and {second:.4}",
            one.store, one.case, one.what
        )
    })
}

pub(super) fn disagreements(one: &Report, other: &Report) -> Vec<String> {
    let pairs = one.figures.iter().filter_map(|figure| {
        let row = (&*figure.case, &*figure.what);
        let other = other.find(figure.topic, row, &figure.store)?;
        differs(figure, other)
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Spread;
    use crate::report::{Topic, Unit};

    fn figure(ratios: &[f64]) -> Figure {
        let spread = Spread::of(ratios).unwrap();
        Figure {
            topic: Topic::Solo,
            case: "1 task".into(),
            what: "cycles".into(),
            unit: Unit::PerSecond,
            store: "memory".into(),
            noisy: spread.is_noisy(),
            lock: spread.clone(),
            bare: None,
            ratio: Some(spread),
            note: None,
        }
    }

    #[test]
    fn only_an_unmarked_difference_is_a_disagreement() {
        let calm = figure(&[1.0; 9]);
        assert_eq!(differs(&calm, &figure(&[1.1; 9])), None);
        let other = differs(&calm, &figure(&[1.2; 9]));
        assert_eq!(
            other.as_deref(),
            Some("memory, 1 task: cycles: 1.0000 and 1.2000")
        );
        let wild = [0.8, 1.0, 1.2, 1.4, 1.6, 0.9, 1.3, 1.5, 2.0];
        assert_eq!(differs(&calm, &figure(&wild)), None);
        assert_eq!(differs(&figure(&[0.0; 9]), &figure(&[0.0; 9])), None);
    }

    /// Pairs of runs of the same thing, from calm to wild: without the mark many disagree, with it none to
    /// speak of.
    #[test]
    fn unmarked_figures_are_the_same_in_the_next_run() {
        for rounds in [3, 9] {
            let mut random = fastrand::Rng::with_seed(7);
            let (mut far, mut bad, mut calm) = (0, 0, 0);
            for number in 0..20_000_u32 {
                let scatter = f64::from(number % 40) / 100.0;
                let mut run = || {
                    let one = || {
                        1.0 + scatter * (random.f64() + random.f64() - random.f64() - random.f64())
                    };
                    figure(&std::iter::repeat_with(one).take(rounds).collect::<Vec<_>>())
                };
                let (first, second) = (run(), run());
                calm += u32::from(!first.noisy && !second.noisy);
                bad += u32::from(differs(&first, &second).is_some());
                let unmarked = |figure: Figure| Figure {
                    noisy: false,
                    ..figure
                };
                far += u32::from(differs(&unmarked(first), &unmarked(second)).is_some());
            }
            assert!(
                far > 1500,
                "{rounds} rounds: only {far} of 20 000 would differ"
            );
            assert!(calm > 2000, "{rounds} rounds: {calm} are not marked");
            assert!(
                bad * 100 < calm,
                "{rounds} rounds: {bad} of {calm} differ unmarked"
            );
        }
    }
}
