//! What a run has found, case by case.

use tokio::time::Instant;

use super::Bench;
use crate::failure::Failure;
use crate::latency::curve;
use crate::measure::{Case, Reading};
use crate::noise::Spread;
use crate::progress::Progress;
use crate::report::{Curve, Figure, Topic, Unit};
use crate::rounds::{Rounds, pass};
use crate::side::Side;
use crate::target::Target;

/// What was found so far.
#[derive(Default)]
pub(super) struct Found {
    pub(super) figures: Vec<Figure>,
    pub(super) curves: Vec<Curve>,
    pub(super) failures: Vec<String>,
    /// The number of rounds that were made.
    pub(super) rounds: usize,
}

impl Found {
    pub(super) async fn of(bench: &Bench, targets: &[Target]) -> Self {
        let mut found = Self::default();
        let cases: Vec<Case> = bench.cases().collect();
        let steps = cases.iter().map(|case| {
            let alone = if case.burdens() { targets.len() } else { 1 };
            alone * case.rounds(bench.rounds)
        });
        let progress = Progress::start(steps.sum(), bench.progress);
        let mut all: Vec<Vec<(&Target, Rounds)>> = Vec::new();
        for case in &cases {
            all.push(found.open(*case, bench, targets));
        }
        let (passes, began) = (bench.passes(), Instant::now());
        for turn in 1..=passes {
            if turn > 1 && began.elapsed() > bench.limit {
                break;
            }
            found.rounds = bench.rounds * turn / passes;
            for (case, probes) in cases.iter().zip(&mut all) {
                let of = case.rounds(bench.rounds);
                let rounds = match (case.comes_again(), turn) {
                    (true, _) => of * (turn - 1) / passes..of * turn / passes,
                    (false, 1) => 0..of,
                    (false, _) => continue,
                };
                pass(*case, bench.span(), probes, rounds, &progress).await;
            }
        }
        for (case, probes) in cases.iter().zip(all) {
            for (target, rounds) in probes {
                match &rounds.failed {
                    Some(error) => found.fail(target, *case, error),
                    None => found.keep(target, *case, &rounds),
                }
            }
        }
        found.compare_names(targets);
        found
    }

    /// What measures a case, on each store where that means something. Nothing runs yet.
    fn open<'a>(
        &mut self,
        case: Case,
        bench: &Bench,
        targets: &'a [Target],
    ) -> Vec<(&'a Target, Rounds)> {
        let mut probes = Vec::new();
        for target in targets {
            match case.open(target, &bench.program) {
                Ok(Some(probe)) => probes.push((target, Rounds::of(probe))),
                Ok(None) => {}
                Err(error) => self.fail(target, case, &error),
            }
        }
        probes
    }

    fn fail(&mut self, target: &Target, case: Case, error: &Failure) {
        let text = format!(
            "{}: {:?}, {}: {error}",
            target.label,
            case.topic(),
            case.name()
        );
        self.failures.push(text);
    }

    fn keep(&mut self, target: &Target, case: Case, rounds: &Rounds) {
        let [lock, bare] = &rounds.values;
        let note = rounds.probe.note();
        for (reading, values) in lock {
            let other = bare.iter().find(|(other, _)| other.what == reading.what);
            let figure = Figure::of(case, target, *reading, values, other.map(|it| &*it.1));
            self.figures.extend(figure.map(|figure| Figure {
                note: note.clone(),
                ..figure
            }));
        }
        // There is no chart for the locks of other libraries.
        if case.topic() == Topic::Peers {
            return;
        }
        for side in Side::BOTH {
            let Some(seen) = rounds.probe.latencies(side) else {
                continue;
            };
            self.curves.push(Curve {
                topic: case.topic(),
                case: case.name(),
                store: target.label.clone(),
                side,
                count: seen.len(),
                points: curve(seen),
            });
        }
    }

    /// How many times as fast many names are as one.
    fn compare_names(&mut self, targets: &[Target]) {
        let rate = |topic, case: Case, what: &str, store: &str| {
            let mut of = self.figures.iter().filter(|figure| figure.topic == topic);
            let is_it = |figure: &&Figure| {
                figure.case == case.name() && figure.what == what && figure.store == store
            };
            of.find(is_it).map(|figure| figure.lock.clone())
        };
        let mut compared = Vec::new();
        for target in targets {
            let many = rate(Topic::Names, Case::ManyNames, "cycles", &target.label);
            let hot = rate(Topic::Crowd, Case::Crowd(64, 1), "turns", &target.label);
            let (Some(many), Some(hot)) = (many, hot) else {
                continue;
            };
            let times = Spread {
                median: many.median / hot.median,
                low: many.low / hot.high,
                high: many.high / hot.low,
                rounds: Vec::new(),
            };
            compared.push(Figure {
                topic: Topic::Names,
                case: Case::ManyNames.name(),
                what: "times as fast as one name".into(),
                unit: Unit::Times,
                store: target.label.clone(),
                noisy: times.is_noisy(),
                lock: times,
                bare: None,
                ratio: None,
                note: None,
            });
        }
        self.figures.extend(compared);
    }
}

impl Figure {
    fn of(
        case: Case,
        target: &Target,
        reading: Reading,
        lock: &[f64],
        bare: Option<&[f64]>,
    ) -> Option<Self> {
        let ratios = bare.map(|bare| {
            let each = lock.iter().zip(bare).map(|(lock, bare)| lock / bare);
            each.filter(|ratio| ratio.is_finite()).collect::<Vec<_>>()
        });
        let ratio = ratios.and_then(|ratios| Spread::of(&ratios));
        let lock = Spread::of(lock)?;
        Some(Self {
            topic: case.topic(),
            case: target.case(case.name()),
            what: reading.what.into(),
            unit: reading.unit,
            store: target.label.clone(),
            noisy: ratio
                .as_ref()
                .map_or_else(|| lock.is_noisy(), Spread::is_noisy),
            bare: bare.and_then(Spread::of),
            ratio,
            lock,
            note: None,
        })
    }
}
