//! The processes, and who of them is stopped.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use conformance_tests::history::{Event, History, Op, Phase, now};
use conformance_tests::servers::RedisServer;
use conformance_tests::taker::Taker;
use conformance_tests::{Failure, Outcome};
use tokio::time::Instant;

use crate::trial::{LOCKS, TTL};

/// Processes that take locks, one client in each.
pub(crate) struct Crowd<'a> {
    server: &'a RedisServer,
    takers: Vec<Taker>,
    /// By the identity of its client, as the locks show it.
    clients: HashMap<String, usize>,
    stops: Vec<Stop>,
    pub(crate) events: Vec<Event>,
}

/// A process that is stopped.
struct Stop {
    taker: usize,
    until: Instant,
}

impl<'a> Crowd<'a> {
    pub(crate) async fn start(server: &'a RedisServer, count: usize) -> Outcome<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
        let mut crowd = Self {
            server,
            takers: Vec::new(),
            clients: HashMap::new(),
            stops: Vec::new(),
            events: Vec::new(),
        };
        for number in 0..count {
            let mut taker = Taker::start(program, &server.url(), TTL).await?;
            let name = format!("introduction/{number}");
            taker.acquire(&name).await?;
            let client = crowd.client_of(&name).await?;
            let client = client.ok_or_else(|| Failure::new("there is no holder"))?;
            taker.run("release").await?;
            crowd.clients.insert(client, number);
            crowd.takers.push(taker);
        }
        Ok(crowd)
    }

    /// The client whose hold stands in the lock.
    async fn client_of(&self, lock: &str) -> Outcome<Option<String>> {
        let fields: Vec<String> = self.server.run(&["HKEYS", lock]).await?;
        let client = fields.first().and_then(|field| field.split(':').next());
        Ok(client.map(str::to_owned))
    }

    /// All work until `span` is over.
    pub(crate) async fn work(&mut self, span: Duration) -> Outcome {
        for (number, taker) in self.takers.iter_mut().enumerate() {
            let lock = name(number % LOCKS);
            let millis = span.as_millis();
            taker.send(&format!("write {lock} {millis}")).await?;
        }
        Ok(())
    }

    /// Stops the holder of a lock at this moment, for longer than its lease lasts. Where its hold
    /// had just ended it is stopped for a shorter time.
    pub(crate) async fn stop_a_holder(&mut self) -> Outcome {
        let lock = name(fastrand::usize(..LOCKS));
        let Some(client) = self.client_of(&lock).await? else {
            return Ok(());
        };
        let known = self.clients.get(&client).copied();
        let taker = known.ok_or_else(|| Failure::new("another client holds"))?;
        if self.stops.iter().any(|stop| stop.taker == taker) {
            return Ok(());
        }
        self.note(taker, &lock, Op::Fault)?;
        self.takers[taker].stop()?;
        let holds = self.client_of(&lock).await? == Some(client);
        let factor = if holds { 1.2 } else { 0.1 };
        let span = TTL.mul_f64(factor + 0.8 * fastrand::f64() * factor);
        self.stops.push(Stop {
            taker,
            until: Instant::now() + span,
        });
        Ok(())
    }

    /// Resumes those whose time is over, or all.
    pub(crate) fn resume(&mut self, all: bool) -> Outcome {
        let over = |stop: &mut Stop| all || stop.until <= Instant::now();
        let over: Vec<Stop> = self.stops.extract_if(.., over).collect();
        for stop in over {
            // Before it resumes: whatever it does then comes later.
            self.note(stop.taker, "", Op::Heal)?;
            self.takers[stop.taker].resume()?;
        }
        Ok(())
    }

    /// How many stand still.
    pub(crate) const fn stopped(&self) -> usize {
        self.stops.len()
    }

    fn note(&mut self, taker: usize, lock: &str, op: Op) -> Outcome {
        let process = self.takers[taker].pid();
        let process = process.ok_or_else(|| Failure::new("a process has ended"))?;
        let event = Event::new(now(), 0, lock, op, Phase::Info);
        self.events.push(event.with_process(process));
        Ok(())
    }

    /// Waits for the end of all, and returns what they saw.
    pub(crate) async fn history(mut self, limit: Duration) -> Outcome<History> {
        for taker in &mut self.takers {
            taker.answer(limit).await?;
        }
        let histories = self.takers.iter().map(Taker::history);
        let stops = History::new(self.events);
        Ok(History::merged(histories.chain([stops])))
    }

    /// The processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.takers.iter().filter_map(Taker::pid).collect()
    }
}

pub(crate) fn name(number: usize) -> String {
    format!("lock/{number}")
}
