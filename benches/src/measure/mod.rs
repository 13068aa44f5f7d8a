//! What is measured, and the rounds in which it is.
//!
//! A round measures both sides, one directly after the other and in changing order, so that whatever else
//! the machine does meets both. Only their ratio is compared over rounds.

mod crowd;
mod cycle;
mod far;
mod holds;
mod recovery;
mod solo;
mod tasks;
pub(crate) mod usage;

use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;

use crate::failure::Outcome;
use crate::report::{Topic, Unit};
use crate::target::{Side, Target};
use crate::worker::Program;

/// One value of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) what: &'static str,
    pub(crate) unit: Unit,
    pub(crate) value: f64,
}

impl Reading {
    const fn new(what: &'static str, unit: Unit, value: f64) -> Self {
        Self { what, unit, value }
    }
}

/// Measures one case on one store.
#[async_trait]
pub(crate) trait Probe: Send {
    /// Measures one side once.
    async fn measure(&mut self, side: Side, span: Duration) -> Outcome<Vec<Reading>>;

    /// Measures both sides once, `first` first.
    async fn round(&mut self, first: Side, span: Duration) -> Outcome<[Vec<Reading>; 2]> {
        Ok(match first {
            Side::Lock => {
                let lock = self.measure(Side::Lock, span).await?;
                [lock, self.measure(Side::Bare, span).await?]
            }
            Side::Bare => {
                let bare = self.measure(Side::Bare, span).await?;
                [self.measure(Side::Lock, span).await?, bare]
            }
        })
    }

    /// Forgets what the first round has collected, in which caches were cold.
    fn warmed(&mut self) {}

    /// All latencies of a side, if single ones were measured.
    fn latencies(&self, _side: Side) -> Option<&Histogram<u64>> {
        None
    }

    /// What a reader has to know about this case on this store.
    fn note(&self) -> Option<String> {
        None
    }
}

/// Something that is measured on every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// One task, nobody else, at a fixed rate.
    Solo,
    /// So many tasks, each with a name of its own.
    Tasks(usize),
    /// So many contenders in so many processes.
    Crowd(usize, usize),
    /// 64 tasks on ten thousand names.
    ManyNames,
    /// Through the proxy that takes its time.
    FarSolo,
    /// The same, with eight contenders.
    FarCrowd,
    /// A holder is killed.
    Recovery,
    /// So many holds are kept.
    Holds(usize),
}

/// All of them, in the order of the report.
pub(crate) const CASES: &[Case] = &[
    Case::Solo,
    Case::Tasks(1),
    Case::Tasks(8),
    Case::Tasks(64),
    Case::Crowd(2, 1),
    Case::Crowd(8, 1),
    Case::Crowd(64, 1),
    Case::Crowd(2, 2),
    Case::Crowd(8, 4),
    Case::Crowd(64, 4),
    Case::ManyNames,
    Case::FarSolo,
    Case::FarCrowd,
    Case::Recovery,
    Case::Holds(1),
    Case::Holds(1_000),
    Case::Holds(100_000),
];

impl Case {
    pub(crate) const fn topic(self) -> Topic {
        match self {
            Self::Solo => Topic::Solo,
            Self::Tasks(_) => Topic::Throughput,
            Self::Crowd(..) => Topic::Crowd,
            Self::ManyNames => Topic::Names,
            Self::FarSolo | Self::FarCrowd => Topic::Distance,
            Self::Recovery => Topic::Recovery,
            Self::Holds(_) => Topic::Holds,
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Solo => "1 task".into(),
            Self::Tasks(1) => "1 task, 1 name".into(),
            Self::Tasks(count) => format!("{count} tasks, {count} names"),
            Self::Crowd(count, 1) => format!("{count} in 1 process"),
            Self::Crowd(count, processes) => format!("{count} in {processes} processes"),
            Self::ManyNames => "64 tasks, 10 000 names".into(),
            Self::FarSolo => "1 task".into(),
            Self::FarCrowd => "8 in 4 processes".into(),
            Self::Recovery => "kill -9 of the holder".into(),
            Self::Holds(1) => "1 hold".into(),
            Self::Holds(count) => format!("{} holds", crate::report::thousands(count)),
        }
    }

    /// How much of the time is for one round, as a part of the others; `None` where it takes as long as it
    /// takes.
    pub(crate) const fn weight(self) -> Option<f64> {
        match self {
            // Those who poll have few turns.
            Self::Crowd(..) => Some(2.0),
            Self::FarSolo | Self::FarCrowd => Some(4.0),
            Self::Solo | Self::Tasks(_) | Self::ManyNames => Some(1.0),
            Self::Recovery | Self::Holds(_) => None,
        }
    }

    /// How many rounds there are, of so many.
    pub(crate) const fn rounds(self, of: usize) -> usize {
        match self {
            Self::Recovery | Self::Holds(_) if of > 3 => 3,
            Self::Holds(1) => 1,
            _ => of,
        }
    }

    /// Whether the first round is measured for nothing.
    pub(crate) const fn warms_up(self) -> bool {
        self.weight().is_some()
    }

    /// Gets ready to measure it; `None` where it means nothing, or was not asked for.
    pub(crate) async fn open(
        self,
        target: &Target,
        program: &Program,
    ) -> Outcome<Option<Box<dyn Probe>>> {
        if let Some(peer) = &target.peer {
            return self.open_peer(target, peer, program).await;
        }
        Ok(Some(match self {
            Self::Solo => Box::new(solo::Solo::new(target)?),
            Self::Tasks(count) => Box::new(tasks::Tasks::new(target, count, None)),
            Self::ManyNames => Box::new(tasks::Tasks::new(target, 64, Some(10_000))),
            Self::Crowd(_, processes) if processes > 1 && !target.is_shared() => return Ok(None),
            Self::Crowd(count, processes) => {
                let crowd =
                    crowd::Crowd::start(target, &target.url, [program; 2], [count, processes]);
                Box::new(crowd.await?)
            }
            Self::FarSolo => match &target.far {
                Some(_) => Box::new(far::Far::new(target)?),
                None => return Ok(None),
            },
            Self::FarCrowd => match &target.far {
                Some(far) => {
                    let crowd = crowd::Crowd::start(target, &far.url, [program; 2], [8, 4]);
                    Box::new(crowd.await?)
                }
                None => return Ok(None),
            },
            Self::Recovery if !target.is_shared() => return Ok(None),
            Self::Recovery => Box::new(recovery::Recovery::new(target, program)),
            Self::Holds(count) => Box::new(holds::Holds::start(target, program, count).await?),
        }))
    }

    /// Somebody else's lock is measured where its program takes turns.
    async fn open_peer(
        self,
        target: &Target,
        peer: &Program,
        program: &Program,
    ) -> Outcome<Option<Box<dyn Probe>>> {
        let crowd = match self {
            Self::Crowd(count, processes) => [count, processes],
            _ => return Ok(None),
        };
        let programs = [peer, program];
        let crowd = crowd::Crowd::start(target, &target.url, programs, crowd).await?;
        Ok(Some(Box::new(crowd)))
    }
}
