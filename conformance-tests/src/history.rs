//! What happened, as one line of JSON for each event, from any number of processes.
//!
//! Times are read from the boot clock, which all processes of one host share, so the lines of
//! several processes can be merged by time. A [`Check`](Op::Check) carries the moment *before* the
//! look: whatever delays the writer afterwards, the guard did stand at the moment in the line.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};

use lockkit_core::clock::{BootClock, Clock};
use lockkit_core::contract::Mode;
use serde::{Deserialize, Serialize};

/// What was asked or told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// To take the lock. `ok` carries the token.
    Acquire,
    /// To give it back.
    Release,
    /// To re-enter a hold. `ok` carries the token that the inner guard shows.
    Reenter,
    /// A look at the guard: `ok` if it still stood at that moment.
    Check,
    /// The guard said that the hold is gone. Always `info`.
    Lost,
    /// Something was broken on purpose. Always `info`.
    Fault,
    /// It was repaired. Always `info`.
    Heal,
    /// An operator broke the lock. Always `info`.
    Break,
    /// A write that the store itself refuses to a stale holder: `fail` if it did.
    Write,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// It is about to begin.
    Invoke,
    /// It was carried out.
    Ok,
    /// It was not carried out.
    Fail,
    /// Nothing is known of its effect, or it is a remark.
    Info,
}

/// One line of a history.
///
/// # Units and shapes
/// `at` is in nanoseconds of the boot clock. `hold` joins the lines of one acquire, its checks, its
/// reentries and its release; it is unique within `process`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When.
    pub at: u64,
    /// Which process wrote it.
    pub process: u32,
    /// Which hold it belongs to; zero for faults and repairs.
    pub hold: u64,
    /// Which lock.
    pub lock: String,
    /// What.
    pub op: Op,
    /// How far.
    pub phase: Phase,
    /// How many may hold together with this hold. Absent where it excludes all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u32>,
    /// The fencing token, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Anything else that helps a reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Event {
    /// An event of `hold` on `lock` at `at`, by this process.
    #[must_use]
    pub fn new(at: u64, hold: u64, lock: &str, op: Op, phase: Phase) -> Self {
        Self {
            at,
            process: std::process::id(),
            hold,
            lock: lock.to_owned(),
            op,
            phase,
            room: None,
            token: None,
            note: None,
        }
    }

    /// Says beside how many others it may hold.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.room = if mode.is_exclusive() {
            None
        } else {
            Some(mode.room())
        };
        self
    }

    /// Adds the token.
    #[must_use]
    pub const fn with_token(mut self, token: u64) -> Self {
        self.token = Some(token);
        self
    }

    /// Adds a remark.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Puts it into another process.
    #[must_use]
    pub const fn with_process(mut self, process: u32) -> Self {
        self.process = process;
        self
    }

    /// The line, without its end.
    #[must_use]
    pub fn line(&self) -> String {
        // Numbers, texts and unit variants: there is nothing that could fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The present moment in the unit of [`Event::at`].
#[must_use]
pub fn now() -> u64 {
    BootClock::default().now().as_nanos()
}

/// Collects the events of one process.
///
/// Cloning gives another handle of the same history.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    inner: Arc<Mutex<Recorded>>,
}

#[derive(Default)]
struct Recorded {
    events: Vec<Event>,
    holds: u64,
    output: Option<Box<dyn Write + Send>>,
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("events", &self.events.len())
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// An empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes each event to `output` as it comes, and keeps none.
    #[must_use]
    pub fn writing_to(output: impl Write + Send + 'static) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Recorded {
                output: Some(Box::new(output)),
                ..Recorded::default()
            })),
        }
    }

    /// A number for the next hold, from one upwards.
    #[must_use]
    pub fn next_hold(&self) -> u64 {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.holds += 1;
        inner.holds
    }

    /// Adds an event.
    pub fn push(&self, event: Event) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut inner.output {
            // In one piece and at once. Without a reader the line is not missed.
            Some(output) => {
                let line = format!("{}\n", event.line());
                drop(output.write_all(line.as_bytes()).and(output.flush()));
            }
            None => inner.events.push(event),
        }
    }

    /// Adds an event of the present moment.
    pub fn note(&self, hold: u64, lock: &str, op: Op, phase: Phase) {
        self.push(Event::new(now(), hold, lock, op, phase));
    }

    /// Everything so far.
    #[must_use]
    pub fn history(&self) -> History {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        History::new(inner.events.clone())
    }
}

/// Events in the order of their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// Sorts events by time; events of one moment stay in the order given.
    #[must_use]
    pub fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        Self { events }
    }

    /// The events.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Joins the histories of several processes of one host.
    #[must_use]
    pub fn merged(histories: impl IntoIterator<Item = Self>) -> Self {
        Self::new(histories.into_iter().flat_map(|one| one.events).collect())
    }

    /// Reads lines of JSON.
    ///
    /// # Errors
    /// - [`io::Error`] if reading fails or a line is no event; the message shows the line.
    pub fn read(input: impl BufRead) -> io::Result<Self> {
        let mut events = Vec::new();
        for line in input.lines() {
            let line = line?;
            events.push(parse(&line)?);
        }
        Ok(Self::new(events))
    }

    /// Writes one line for each event.
    ///
    /// # Errors
    /// - [`io::Error`] if writing fails.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        for event in &self.events {
            writeln!(output, "{}", event.line())?;
        }
        Ok(())
    }
}

/// Reads one line.
///
/// # Errors
/// - [`io::Error`] if it is no event; the message shows the line.
pub fn parse(line: &str) -> io::Result<Event> {
    serde_json::from_str(line).map_err(|error| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("`{line}` is no event of a history: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written_and_merged_by_time() {
        let mine = Event::new(30, 1, "a \"b\"\n", Op::Acquire, Phase::Ok).with_token(7);
        let other = Event::new(20, 1, "a", Op::Fault, Phase::Info)
            .with_process(1)
            .with_note("cut");
        let merged = History::merged([
            History::new(vec![mine.clone()]),
            History::new(vec![other.clone()]),
        ]);
        let mut text = Vec::new();
        merged.write(&mut text).unwrap();
        let read = History::read(text.as_slice()).unwrap();
        assert_eq!(read, merged);
        assert_eq!(read.events(), [other, mine]);
        let error = History::read("{\"at\":1}\n".as_bytes()).unwrap_err();
        assert!(error.to_string().contains("{\"at\":1}"), "{error}");
    }
}
