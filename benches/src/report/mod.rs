//! What was measured, and its forms: a table, JSON and a page.
//!
//! # Units and shapes
//! The JSON is this module's [`Report`], field for field; `format` grows when a field changes its
//! meaning or goes. Times are seconds, memory is bytes.

mod agree;
mod chart;
mod curves;
mod markdown;
mod page;
mod table;
mod words;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::bare::Fact;
use crate::machine::Machine;
use crate::noise::Spread;

pub(crate) use words::thousands;

/// The fact of a peer that names its library and version.
pub const LOCK_OF: &str = "lock of";

/// The version of the JSON.
pub const FORMAT: u32 = 1;

/// All that a run has found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How it was measured.
    pub method: Method,
    /// The stores, in the order in which they were named.
    pub stores: Vec<Store>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// The latencies behind some of the figures.
    pub curves: Vec<Curve>,
    /// What could not be measured, and why.
    pub failures: Vec<String>,
    /// What is not installed here, and so was not measured.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// How it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Method {
    /// How many rounds most cases have.
    pub rounds: usize,
    /// How long one side is measured in a round of the shortest kind, in seconds.
    pub span: f64,
    /// The delay of the longer way in each direction, in seconds.
    pub delay: Option<f64>,
    /// A ratio is noisy if its interval is wider than this part of it.
    pub noise_limit: f64,
}

/// A store of the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Store {
    /// Its name in the report.
    pub label: String,
    /// Its URL, without anything that may be secret.
    pub url: String,
    /// For the lock of another library: the label of the store that it works on.
    #[serde(default)]
    pub peer_on: Option<String>,
    /// Versions and settings, as the server reports them.
    pub facts: Vec<Fact>,
    /// What a cycle of its bare operations is.
    pub bare_cycle: String,
    /// What a turn at its bare operations is.
    pub bare_turn: String,
    /// How the bare lock of a killed program becomes free; empty where it does not.
    pub bare_recovery: String,
    /// What a bare hold is.
    pub bare_hold: String,
}

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Topic {
    /// One task alone.
    Solo,
    /// Many tasks, each with its own locks.
    Throughput,
    /// Several tasks that want the same lock.
    Crowd,
    /// Many names compared with one.
    Names,
    /// Readers, permits, and several names together.
    Modes,
    /// Several tasks that read and write one value.
    Sections,
    /// With `--delay`: a store that is far away.
    Distance,
    /// A holder is killed.
    Recovery,
    /// Many holds.
    Holds,
    /// The locks of other libraries.
    #[value(skip)]
    Peers,
}

impl Topic {
    /// All, in the order of the report.
    pub const ALL: [Self; 10] = [
        Self::Solo,
        Self::Throughput,
        Self::Crowd,
        Self::Names,
        Self::Modes,
        Self::Sections,
        Self::Distance,
        Self::Recovery,
        Self::Holds,
        Self::Peers,
    ];
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Unit {
    /// Seconds: less is better.
    Seconds,
    /// A rate per second: more is better.
    PerSecond,
    /// Round trips: less is better.
    Trips,
    /// Bytes: less is better.
    Bytes,
    /// A part of the whole: less is better.
    Part,
    /// Jain's index: 1 is best.
    Jain,
    /// A factor: more is better.
    Times,
}

/// One number of one store, over all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Figure {
    /// What it is about.
    pub topic: Topic,
    /// The circumstances.
    pub case: String,
    /// What was measured.
    pub what: String,
    /// Its unit.
    pub unit: Unit,
    /// The label of the store.
    pub store: String,
    /// The lock.
    pub lock: Spread,
    /// The store's own operations, or our lock for the lock of another library; `None` where there is no
    /// comparison.
    pub bare: Option<Spread>,
    /// The lock divided by the bare operations, round by round.
    pub ratio: Option<Spread>,
    /// Whether the ratio varies by more than the limit.
    pub noisy: bool,
    /// A remark for the reader.
    pub note: Option<String>,
}

/// The latencies of one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Curve {
    /// What it is about.
    pub topic: Topic,
    /// The circumstances.
    pub case: String,
    /// The label of the store.
    pub store: String,
    /// The lock or the bare operations.
    pub side: crate::side::Side,
    /// How many latencies there were.
    pub count: u64,
    /// Pairs of a part of all latencies, and the seconds within which that part was.
    pub points: Vec<(f64, f64)>,
}

impl Report {
    /// The report as JSON.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if a number is none.
    pub fn to_json(&self) -> crate::Outcome<String> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it is not such a text.
    pub fn from_json(text: &str) -> crate::Outcome<Self> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        // First, for another format has other fields.
        let Head { format } = serde_json::from_str(text)?;
        if format != FORMAT {
            let message = format!("this is format {format} and not {FORMAT}");
            return Err(crate::Failure::new(message));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// The report as a table for a terminal.
    #[must_use]
    pub fn to_table(&self) -> String {
        table::write(self)
    }

    /// The report as one HTML file that needs nothing else.
    #[must_use]
    pub fn to_page(&self) -> String {
        page::write(self)
    }

    /// The figures that tell most, as a table of Markdown for a manual.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        markdown::write(self)
    }

    /// A document in which the text between `<!-- measured: begin -->` and `<!-- measured: end -->` is
    /// replaced by [`to_markdown`](Self::to_markdown); `None` if it has no such lines.
    #[must_use]
    pub fn put_into(&self, document: &str) -> Option<String> {
        markdown::replace(document, &self.to_markdown())
    }

    /// The ratios that differ from those of another run by more than the limit, though neither run has marked
    /// them as noisy.
    #[must_use]
    pub fn disagreements(&self, other: &Self) -> Vec<String> {
        agree::disagreements(self, other)
    }

    /// The stores that were measured with our lock.
    pub(crate) fn own_stores(&self) -> impl Iterator<Item = &Store> {
        self.stores.iter().filter(|store| store.peer_on.is_none())
    }

    /// The figures of a topic, in the order in which they were measured.
    pub(crate) fn of(&self, topic: Topic) -> impl Iterator<Item = &Figure> {
        self.figures
            .iter()
            .filter(move |figure| figure.topic == topic)
    }

    /// What was measured of a topic, each once: the rows of its table.
    pub(crate) fn rows(&self, topic: Topic) -> Vec<(&str, &str)> {
        let mut rows: Vec<(&str, &str)> = Vec::new();
        for figure in self.of(topic) {
            let row = (&*figure.case, &*figure.what);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    /// One figure of one store.
    pub(crate) fn find(&self, topic: Topic, row: (&str, &str), store: &str) -> Option<&Figure> {
        let mut of = self.of(topic);
        of.find(|figure| (&*figure.case, &*figure.what) == row && figure.store == store)
    }
}
