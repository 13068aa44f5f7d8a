//! What is measured, and in which rounds.
//!
//! A round measures both sides, one directly after the other and in alternating order, so that other load of
//! the machine meets both. Only their ratio is compared over rounds.

mod crowd;
mod cycle;
mod far;
mod holds;
mod recovery;
mod sections;
mod solo;
mod tasks;
pub(crate) mod usage;

use std::num::NonZeroU32;
use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;
use lockkit::contract::Mode;

use crate::counter::Control;
use crate::failure::Outcome;
use crate::report::{Topic, Unit};
use crate::side::Side;
use crate::target::Target;
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

    /// Starts what rests between two passes.
    async fn wake(&mut self) -> Outcome {
        Ok(())
    }

    /// Ends what need not run while other cases are measured.
    fn rest(&mut self) {}

    /// Whether this measurement is discarded: a pass begins, and caches are cold.
    fn set_cold(&mut self, _cold: bool) {}

    /// All latencies of a side, if single ones were measured.
    fn latencies(&self, _side: Side) -> Option<&Histogram<u64>> {
        None
    }

    /// A remark for the reader about this case on this store.
    fn note(&self) -> Option<String> {
        None
    }
}

/// Something that is measured on every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// One task alone, at a fixed rate.
    Solo,
    /// This number of tasks, each with its own name.
    Tasks(usize),
    /// A number of contenders in a number of processes.
    Crowd(usize, usize),
    /// 64 tasks on ten thousand names.
    ManyNames,
    /// Eight contenders that do not exclude each other, or not all.
    Shared(Mode),
    /// One task that takes four names at once.
    FourNames,
    /// Through the proxy that delays.
    FarSolo,
    /// The same, with eight contenders.
    FarCrowd,
    /// A holder is killed.
    Recovery,
    /// This number of holds is kept.
    Holds(usize),
    /// A number of contenders that update one number, and how the store itself would exclude them.
    Sections(Control, usize),
    /// The same through the proxy that delays.
    FarSections(Control, usize),
    /// The lock of another library, with a number of contenders in a number of processes.
    Peer(usize, usize),
}

const FOUR_PERMITS: Mode = Mode::Permit {
    of: NonZeroU32::new(4).unwrap(),
};

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
    Case::Shared(Mode::Read),
    Case::Shared(FOUR_PERMITS),
    Case::FourNames,
    Case::Sections(Control::Optimistic, 1),
    Case::Sections(Control::Optimistic, 2),
    Case::Sections(Control::Optimistic, 8),
    Case::Sections(Control::Optimistic, 64),
    Case::Sections(Control::Pessimistic, 1),
    Case::Sections(Control::Pessimistic, 2),
    Case::Sections(Control::Pessimistic, 8),
    Case::Sections(Control::Pessimistic, 64),
    Case::FarSections(Control::Optimistic, 1),
    Case::FarSections(Control::Optimistic, 64),
    Case::FarSections(Control::Pessimistic, 1),
    Case::FarSections(Control::Pessimistic, 64),
    Case::FarSolo,
    Case::FarCrowd,
    Case::Recovery,
    Case::Holds(1),
    Case::Holds(1_000),
    Case::Holds(100_000),
    Case::Peer(1, 1),
    Case::Peer(8, 1),
    Case::Peer(8, 4),
];

impl Case {
    pub(crate) const fn topic(self) -> Topic {
        match self {
            Self::Solo => Topic::Solo,
            Self::Tasks(_) => Topic::Throughput,
            Self::Crowd(..) => Topic::Crowd,
            Self::ManyNames => Topic::Names,
            Self::Shared(_) | Self::FourNames => Topic::Modes,
            Self::Sections(..) | Self::FarSections(..) => Topic::Sections,
            Self::FarSolo | Self::FarCrowd => Topic::Distance,
            Self::Recovery => Topic::Recovery,
            Self::Holds(_) => Topic::Holds,
            Self::Peer(..) => Topic::Peers,
        }
    }

    /// Whether it needs the proxy that delays.
    pub(crate) const fn is_far(self) -> bool {
        matches!(self, Self::FarSections(..) | Self::FarSolo | Self::FarCrowd)
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Solo => "1 task".into(),
            Self::Peer(1, _) => "1 alone".into(),
            Self::Tasks(1) => "1 task, 1 name".into(),
            Self::Tasks(count) => format!("{count} tasks, {count} names"),
            Self::Crowd(count, 1) | Self::Peer(count, 1) => format!("{count} in 1 process"),
            Self::Crowd(count, processes) | Self::Peer(count, processes) => {
                format!("{count} in {processes} processes")
            }
            Self::ManyNames => "64 tasks, 10 000 names".into(),
            Self::Shared(Mode::Permit { of }) => format!("8 for {of} permits"),
            Self::Shared(_) => "8 readers".into(),
            Self::FourNames => "4 names together".into(),
            Self::Sections(control, count) => {
                let crowd = Self::Peer(count, sections::processes(count)).name();
                match control {
                    Control::Optimistic => crowd,
                    Control::Pessimistic => format!("{crowd}, row lock"),
                }
            }
            Self::FarSections(control, count) => {
                format!("{}, delayed", Self::Sections(control, count).name())
            }
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
            // Contenders that poll have few turns.
            Self::Crowd(..) | Self::Shared(_) | Self::Peer(..) => Some(2.0),
            Self::FarSections(..) => Some(2.0),
            Self::FarSolo | Self::FarCrowd => Some(4.0),
            Self::Solo
            | Self::Tasks(_)
            | Self::ManyNames
            | Self::FourNames
            | Self::Sections(..) => Some(1.0),
            Self::Recovery | Self::Holds(_) => None,
        }
    }

    /// How long a round is at least.
    pub(crate) const fn least(self) -> Duration {
        match self {
            // Longer than the pauses of contenders that poll (up to a quarter of a second), the first turns
            // over a distance, and the warm-up of programs that are compiled at run time.
            Self::Peer(..) | Self::FarCrowd | Self::FarSections(..) => Duration::from_millis(400),
            // Each has several turns, also where a commit takes milliseconds.
            Self::Sections(_, 64) => Duration::from_millis(250),
            _ => Duration::ZERO,
        }
    }

    /// The number of rounds, if most cases have `of`.
    pub(crate) const fn rounds(self, of: usize) -> usize {
        match self {
            Self::Recovery | Self::Holds(_) if of > 3 => 3,
            _ => of,
        }
    }

    /// Whether a run measures it in several passes, each after a warm-up round. What takes long to prepare
    /// is measured once.
    pub(crate) const fn comes_again(self) -> bool {
        self.weight().is_some()
    }

    /// Whether it loads the store and the machine for as long as it is awake.
    pub(crate) const fn burdens(self) -> bool {
        matches!(self, Self::Holds(_))
    }

    /// Prepares its measurement; `None` where it has no meaning, or was not requested.
    pub(crate) fn open(
        self,
        target: &Target,
        program: &Program,
    ) -> Outcome<Option<Box<dyn Probe>>> {
        if target.peer.is_some() != matches!(self, Self::Peer(..)) {
            return Ok(None);
        }
        Ok(Some(match self {
            Self::Solo => Box::new(solo::Solo::new(target)?),
            Self::Tasks(count) => Box::new(tasks::Tasks::new(target, count, None)),
            Self::ManyNames => Box::new(tasks::Tasks::new(target, 64, Some(10_000))),
            Self::Crowd(_, processes) if processes > 1 && !target.is_shared() => return Ok(None),
            Self::Crowd(count, processes) => Box::new(crowd::Crowd::new(
                target,
                &target.url,
                [program; 2],
                [count, processes],
                Mode::Exclusive,
            )?),
            Self::Shared(_) if !target.shares() => return Ok(None),
            Self::Shared(mode) => Box::new(crowd::Crowd::new(
                target,
                &target.url,
                [program; 2],
                [8, if target.is_shared() { 4 } else { 1 }],
                mode,
            )?),
            Self::FourNames => Box::new(solo::Solo::with_four_names(target)?),
            Self::Sections(control, count) | Self::FarSections(control, count) => {
                return sections::open(target, program, control, count, self.is_far());
            }
            Self::FarSolo => match &target.far {
                Some(_) => Box::new(far::Far::new(target)?),
                None => return Ok(None),
            },
            Self::FarCrowd => match &target.far {
                Some(far) => Box::new(crowd::Crowd::new(
                    target,
                    &far.url,
                    [program; 2],
                    [8, 4],
                    Mode::Exclusive,
                )?),
                None => return Ok(None),
            },
            Self::Recovery if !target.is_shared() => return Ok(None),
            Self::Recovery => Box::new(recovery::Recovery::new(target, program)),
            Self::Holds(count) => Box::new(holds::Holds::new(target, program, count)),
            Self::Peer(count, processes) => {
                let programs = [target.peer.as_ref().unwrap_or(program), program];
                Box::new(crowd::Crowd::new(
                    target,
                    &target.url,
                    programs,
                    [count, processes],
                    programs[0].mode,
                )?)
            }
        }))
    }
}
