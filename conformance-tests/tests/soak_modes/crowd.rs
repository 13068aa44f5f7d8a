//! The processes, and what is done to them and to their server.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use conformance_tests::history::{Event, History, Op, Phase, now};
use conformance_tests::taker::Taker;
use conformance_tests::{Failure, Outcome};
use tokio::time::Instant;

use crate::trial::{CLIENTS, Faults, NAMES, TTL};

/// The most that are stopped at once, so that locks are handed on meanwhile.
const STOPPED: usize = 2;

/// Processes that take locks in random modes.
pub(crate) struct Crowd<'a> {
    servers: &'a dyn Faults,
    url: &'a str,
    end: Instant,
    takers: Vec<Taker>,
    /// Which are stopped, and until when.
    stops: Vec<(u32, Instant)>,
    /// What the killed saw, and what was done to all.
    histories: Vec<History>,
    pub(crate) done: Done,
}

/// How often it was done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) kills: u32,
    /// For longer than a lease.
    pub(crate) long_stops: u32,
    pub(crate) short_stops: u32,
    /// Of the servers.
    pub(crate) faults: u32,
}

impl<'a> Crowd<'a> {
    /// All work until `span` is over.
    pub(crate) async fn start(
        servers: &'a dyn Faults,
        url: &'a str,
        span: Duration,
    ) -> Outcome<Self> {
        let mut crowd = Self {
            servers,
            url,
            end: Instant::now() + span,
            takers: Vec::new(),
            stops: Vec::new(),
            histories: Vec::new(),
            done: Done::default(),
        };
        for _ in 0..CLIENTS {
            crowd.start_one().await?;
        }
        Ok(crowd)
    }

    async fn start_one(&mut self) -> Outcome {
        let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
        let mut taker = Taker::start(program, self.url, TTL).await?;
        let millis = (self.end - Instant::now()).as_millis();
        taker
            .send(&format!("mix {millis} {}", NAMES.join(" ")))
            .await?;
        self.takers.push(taker);
        Ok(())
    }

    /// Kills one, and starts another in its place.
    pub(crate) async fn kill(&mut self) -> Outcome {
        let mut taker = self
            .takers
            .swap_remove(fastrand::usize(..self.takers.len()));
        let process = pid(&taker)?;
        self.note(process, Op::Fault);
        taker.kill().await?;
        self.note(process, Op::Heal);
        self.stops.retain(|(stopped, _)| *stopped != process);
        // What it wrote before its end is still in the pipe.
        if taker.answer(TTL).await.is_ok() {
            return Err(Failure::new("a process outlived its kill"));
        }
        self.histories.push(without_open_requests(&taker.history()));
        self.done.kills += 1;
        self.start_one().await
    }

    /// Stops one that runs, for longer than a lease lasts or, twice as often, not.
    pub(crate) fn stop(&mut self) -> Outcome {
        let number = fastrand::usize(..self.takers.len());
        let process = pid(&self.takers[number])?;
        let stopped = |(stopped, _): &(u32, Instant)| *stopped == process;
        if self.stops.len() == STOPPED || self.stops.iter().any(stopped) {
            return Ok(());
        }
        self.note(process, Op::Fault);
        self.takers[number].stop()?;
        let (factor, done) = match self.done.long_stops * 2 <= self.done.short_stops {
            true => (1.1, &mut self.done.long_stops),
            false => (0.1, &mut self.done.short_stops),
        };
        *done += 1;
        let span = TTL.mul_f64(factor + fastrand::f64() * 0.5);
        self.stops.push((process, Instant::now() + span));
        Ok(())
    }

    /// Resumes those whose time is over, or all.
    pub(crate) fn resume(&mut self, all: bool) -> Outcome {
        let over = |stop: &mut (u32, Instant)| all || stop.1 <= Instant::now();
        let over: Vec<_> = self.stops.extract_if(.., over).collect();
        for (process, _) in over {
            // Before it resumes: whatever it does then comes later.
            self.note(process, Op::Heal);
            for taker in &self.takers {
                if pid(taker)? == process {
                    taker.resume()?;
                }
            }
        }
        Ok(())
    }

    /// Does something to the servers.
    pub(crate) async fn make_fault(&mut self) -> Outcome {
        let costs_holds = self.servers.costs_holds();
        if costs_holds {
            // A fault of process zero concerns all.
            self.note(0, Op::Fault);
        }
        self.servers.make().await?;
        if costs_holds {
            self.note(0, Op::Heal);
        }
        self.done.faults += 1;
        Ok(())
    }

    fn note(&mut self, process: u32, op: Op) {
        let event = Event::new(now(), 0, "", op, Phase::Info).with_process(process);
        self.histories.push(History::new(vec![event]));
    }

    /// Waits for the end of all, and returns what they saw.
    pub(crate) async fn history(mut self, limit: Duration) -> Outcome<History> {
        for taker in &mut self.takers {
            taker.answer(limit).await?;
            self.histories.push(taker.history());
        }
        Ok(History::merged(self.histories))
    }
}

fn pid(taker: &Taker) -> Outcome<u32> {
    let ended = || Failure::new("a process has ended by itself");
    taker.pid().ok_or_else(ended)
}

/// What a process saw, without the requests that were open when it was killed.
fn without_open_requests(history: &History) -> History {
    let events = history.events();
    let answered: HashSet<u64> = events
        .iter()
        .filter(|event| event.op == Op::Acquire && event.phase != Phase::Invoke)
        .map(|event| event.hold)
        .collect();
    let answered = events.iter().filter(|event| answered.contains(&event.hold));
    History::new(answered.cloned().collect())
}
