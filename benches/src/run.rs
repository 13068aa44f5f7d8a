//! A run: all cases on all stores.

mod found;

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use self::found::Found;
use crate::bare::Fact;
use crate::failure::{Failure, Outcome};
use crate::machine::{self, Machine};
use crate::measure::{CASES, Case};
use crate::noise::LIMIT;
use crate::report::{FORMAT, Method, Report, Store, Topic};
use crate::target::{NamedUrl, Target};
use crate::worker::Program;

/// What is measured, and for how long.
#[derive(Clone, Debug)]
#[must_use = "nothing is measured before `run`"]
pub struct Bench {
    stores: Vec<String>,
    peers: Vec<(NamedUrl, Program, Vec<Fact>)>,
    left_out: Vec<String>,
    topics: Vec<Topic>,
    rounds: usize,
    time: Duration,
    limit: Duration,
    delay: Option<Duration>,
    holds: usize,
    progress: bool,
    program: Program,
    /// Where the embedded stores are, until the run is over.
    place: Option<Arc<TempDir>>,
}

impl Bench {
    /// Measures these stores, each a URL or `NAME=URL`. `program` starts the processes that take part.
    pub fn new(stores: impl IntoIterator<Item = String>, program: Program) -> Self {
        Self {
            stores: stores.into_iter().collect(),
            peers: Vec::new(),
            left_out: Vec::new(),
            topics: Topic::ALL.to_vec(),
            rounds: 9,
            time: Duration::from_secs(15),
            limit: Duration::MAX,
            delay: None,
            holds: 100_000,
            progress: false,
            program,
            place: None,
        }
    }

    /// Measures the stores that need no server, in a temporary directory, with ten seconds for each.
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
        // All of it within two minutes, also on a busy machine and a slow disk.
        let mut bench = Self::new(stores, program)
            .time(Duration::from_secs(10))
            .limit(Duration::from_secs(80));
        bench.place = Some(Arc::new(place));
        Ok(bench)
    }

    /// Also measures the lock of another library on the server of `url`, without and with contention, each
    /// time compared with ours; the report shows `facts`.
    pub fn peer(
        mut self,
        label: impl Into<String>,
        url: impl Into<String>,
        program: Program,
        facts: Vec<Fact>,
    ) -> Self {
        let (label, url) = (label.into(), url.into());
        self.peers.push((NamedUrl { label, url }, program, facts));
        self
    }

    /// Lists in the report what could not take part.
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

    /// The time for each store, except for measurements of a fixed length; by default 15 seconds.
    pub const fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// After this time, no case is repeated: a third of the rounds is always made, and the report says how
    /// many there were. By default there is no limit.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Also measures through a proxy with this delay in each direction.
    pub const fn delay(mut self, delay: Option<Duration>) -> Self {
        self.delay = delay;
        self
    }

    /// The most holds at the same time; 100 000 by default.
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
    /// - [`Failure`] if a store cannot be opened. The report lists what could not be measured on an open
    ///   store.
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
        for place in NamedUrl::all(&self.stores)? {
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
        let mut left_out = self.left_out.clone();
        if found.rounds < self.rounds {
            let (made, all) = (found.rounds, self.rounds);
            left_out.push(format!(
                "{} of {all} rounds: the machine or its disk was slow",
                all - made
            ));
        }
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
                rounds: found.rounds,
                span: self.span().as_secs_f64(),
                delay: self.delay.map(|delay| delay.as_secs_f64()),
                noise_limit: LIMIT,
            },
            stores: targets.iter().map(store).collect(),
            figures: found.figures,
            curves: found.curves,
            failures,
            left_out,
        })
    }

    /// The cases that were asked for.
    fn cases(&self) -> impl Iterator<Item = Case> {
        let delayed = self.delay.is_some();
        let wanted = move |case: &Case| {
            let few = !matches!(case, Case::Holds(count) if *count > self.holds);
            let near = delayed || !case.is_far();
            let met = !self.peers.is_empty() || case.topic() != Topic::Peers;
            self.topics.contains(&case.topic()) && few && near && met
        };
        CASES.iter().copied().filter(wanted)
    }

    /// How often the run returns to a case, minutes later: the other load of the machine changes slowly, so
    /// consecutive rounds would all agree.
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
