//! A run: all cases on all stores.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::bare::Fact;
use crate::failure::{Failure, Outcome};
use crate::latency::curve;
use crate::machine::{self, Machine};
use crate::measure::{CASES, Case, Reading};
use crate::noise::{LIMIT, Spread};
use crate::progress::Progress;
use crate::report::{Curve, FORMAT, Figure, Method, Report, Store, Topic, Unit};
use crate::rounds::{Rounds, pass};
use crate::target::{Place, Side, Target};
use crate::worker::Program;

/// What is measured, and for how long.
#[derive(Clone, Debug)]
#[must_use = "nothing is measured before `run`"]
pub struct Bench {
    stores: Vec<String>,
    peers: Vec<(Place, Program, Vec<Fact>)>,
    left_out: Vec<String>,
    topics: Vec<Topic>,
    rounds: usize,
    time: Duration,
    delay: Option<Duration>,
    holds: usize,
    progress: bool,
    program: Program,
    /// Where the embedded stores are, until the run is over.
    place: Option<Arc<TempDir>>,
}

impl Bench {
    /// Of these stores, each a URL or `NAME=URL`. `program` starts the processes that take part.
    pub fn new(stores: impl IntoIterator<Item = String>, program: Program) -> Self {
        Self {
            stores: stores.into_iter().collect(),
            peers: Vec::new(),
            left_out: Vec::new(),
            topics: Topic::ALL.to_vec(),
            rounds: 9,
            time: Duration::from_secs(15),
            delay: None,
            holds: 100_000,
            progress: false,
            program,
            place: None,
        }
    }

    /// Of the stores that need no server, in a directory that goes afterwards, with ten seconds for each.
    ///
    /// # Errors
    /// - [`Failure`] if there is no place for it.
    pub fn embedded(program: Program) -> Outcome<Self> {
        let place = TempDir::with_prefix("lockkit-bench-")?;
        let at = place.path().display();
        let mut stores = vec!["memory:".to_owned(), format!("file:{at}/files")];
        if cfg!(feature = "sqlite") {
            stores.push(format!("sqlite:{at}/locks.db"));
        }
        // All of it within two minutes, also on a busy machine.
        let mut bench = Self::new(stores, program).time(Duration::from_secs(10));
        bench.place = Some(Arc::new(place));
        Ok(bench)
    }

    /// Also measures somebody else's lock on the server of `url`, alone and where many want the same, each time
    /// beside ours; `facts` stand in the report.
    pub fn peer(
        mut self,
        label: impl Into<String>,
        url: impl Into<String>,
        program: Program,
        facts: Vec<Fact>,
    ) -> Self {
        let (label, url) = (label.into(), url.into());
        self.peers.push((Place { label, url }, program, facts));
        self
    }

    /// Says in the report what could not take part.
    pub fn left_out(mut self, what: impl Into<String>) -> Self {
        self.left_out.push(what.into());
        self
    }

    /// Only these topics.
    pub fn topics(mut self, topics: impl IntoIterator<Item = Topic>) -> Self {
        self.topics = topics.into_iter().collect();
        self
    }

    /// How many rounds each case has; 9 by default. Fewer than six tell little about the noise.
    pub const fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    /// The time for each store, in which everything is measured that could last as long as one likes.
    /// By default 15 seconds.
    pub const fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Also measures through a proxy that delays each direction so long.
    pub const fn delay(mut self, delay: Option<Duration>) -> Self {
        self.delay = delay;
        self
    }

    /// Holds no more than so many at the same time; 100 000 by default.
    pub const fn holds(mut self, most: usize) -> Self {
        self.holds = most;
        self
    }

    /// Shows how far it has come, on a terminal.
    pub const fn progress(mut self, shown: bool) -> Self {
        self.progress = shown;
        self
    }

    /// Measures.
    ///
    /// # Errors
    /// - [`Failure`] if a store cannot be opened. What cannot be measured on an open store stands in the
    ///   report.
    ///
    /// # Cancel safety
    /// The processes that take part end; names of this run may stay at the stores.
    pub async fn run(self) -> Outcome<Report> {
        if self.stores.is_empty() || self.rounds == 0 {
            return Err(Failure::new("there is nothing to measure"));
        }
        let mut machine = Machine::look();
        let prefix = format!("lockkit-bench-{:08x}-", fastrand::u32(..));
        let mut targets = Vec::new();
        for place in Place::all(&self.stores)? {
            let target = Target::open(&place, &prefix, self.delay).await;
            let why = |error| Failure::new(format!("{}: {error}", place.label));
            targets.push(target.map_err(why)?);
        }
        for (place, program, facts) in &self.peers {
            let mut target = Target::open(place, &prefix, None).await?;
            let same = |other: &&Target| other.peer.is_none() && other.url == place.url;
            let on = targets.iter().find(same).map(|store| store.label.clone());
            target.peer = Some(program.clone());
            target.peer_on = Some(on.unwrap_or_else(|| target.shown.clone()));
            // Its names must not be those of the lock that it is compared with.
            target.prefix = format!("{prefix}peer{}-", targets.len());
            target.facts.extend(facts.iter().cloned());
            targets.push(target);
        }
        let found = Found::of(&self, &targets).await;
        let mut failures = found.failures;
        for target in &targets {
            if let Err(error) = target.sweep().await {
                failures.push(format!("{}: cleaning up: {error}", target.label));
            }
        }
        machine.load_after = machine::load();
        Ok(Report {
            format: FORMAT,
            machine,
            method: Method {
                rounds: self.rounds,
                span: self.span().as_secs_f64(),
                delay: self.delay.map(|delay| delay.as_secs_f64()),
                noise_limit: LIMIT,
            },
            stores: targets.iter().map(store).collect(),
            figures: found.figures,
            curves: found.curves,
            failures,
            left_out: self.left_out.clone(),
        })
    }

    /// The cases that were asked for.
    fn cases(&self) -> impl Iterator<Item = Case> {
        let delayed = self.delay.is_some();
        let wanted = move |case: &Case| {
            let few = !matches!(case, Case::Holds(count) if *count > self.holds);
            let near = delayed || case.topic() != Topic::Distance;
            let met = !self.peers.is_empty() || case.topic() != Topic::Peers;
            self.topics.contains(&case.topic()) && few && near && met
        };
        CASES.iter().copied().filter(wanted)
    }

    /// How often the run comes back to a case, minutes later: what else the machine does changes slowly, and
    /// rounds that follow one another would all agree.
    fn passes(&self) -> usize {
        (self.rounds / 3).clamp(1, 3)
    }

    /// How long one side is measured in one round, so that all of it takes the time that is given.
    fn span(&self) -> Duration {
        let rounds = u32::try_from(self.rounds).unwrap_or(u32::MAX);
        let weights = |of_peers| {
            let cases = self
                .cases()
                .filter(|case| (case.topic() == Topic::Peers) == of_peers);
            cases.filter_map(Case::weight).sum::<f64>()
        };
        // No store is measured on both.
        let weights = weights(false).max(weights(true));
        let warming_up = u32::try_from(self.passes()).unwrap_or(u32::MAX);
        let shares = 2.0 * weights * (f64::from(rounds) + 0.5 * f64::from(warming_up));
        if shares == 0.0 {
            return Duration::ZERO;
        }
        self.time.div_f64(shares)
    }
}

fn store(target: &Target) -> Store {
    let words = target.bare.words();
    Store {
        label: target.label.clone(),
        url: target.shown.clone(),
        peer_on: target.peer_on.clone(),
        facts: target.facts.clone(),
        bare_cycle: words.cycle.into(),
        bare_turn: words.turn.into(),
        bare_recovery: words.recovery.into(),
        bare_hold: words.hold.into(),
    }
}

/// What was found so far.
#[derive(Default)]
struct Found {
    figures: Vec<Figure>,
    curves: Vec<Curve>,
    failures: Vec<String>,
}

impl Found {
    async fn of(bench: &Bench, targets: &[Target]) -> Self {
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
        let passes = bench.passes();
        for turn in 1..=passes {
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
        // Nobody draws those of others.
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
