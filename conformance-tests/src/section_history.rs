//! Histories of sections: processes that run them, what is done to those, and the checks.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{ClientId, Lease, Lock, LockClient};
use lockkit_proxy::{Direction, Dropped, Fate, Flow, Proxy};
use tokio::time::{Instant, sleep};

use crate::checker::{sections_follow, stale_writes_refused, tokens_grow};
use crate::failure::{Failure, Outcome, ensure};
use crate::history::{History, Op, Phase};
use crate::sections;
use crate::taker::Taker;
use crate::task::{soak_length, soon};

/// How many processes there are. Each has several tasks.
const PROCESSES: usize = 4;
const SPAN: Duration = Duration::from_millis(3500);
/// The time in which what was stopped comes back before the end.
const QUIET: Duration = Duration::from_millis(300);
/// What is done, in this order: each of them soon.
const FAULTS: [Fault; 11] = [
    Fault::Break,
    Fault::Kill,
    Fault::Reset,
    Fault::Expire,
    Fault::Hold,
    Fault::Break,
    Fault::Break,
    Fault::Reset,
    Fault::Break,
    Fault::Break,
    Fault::Break,
];
/// The fewest commits that tell anything.
const FEWEST: usize = 5;

/// Processes that run sections of one lock for a few seconds, or as long as `LOCKKIT_SOAK` says.
///
/// They are killed and stopped, also for longer than their lease, their holds are broken and, where a proxy leads
/// to the server, their requests and the replies to these are lost.
#[derive(Debug)]
pub struct SectionHistory<'a> {
    program: &'a Path,
    urls: Vec<String>,
    name: String,
    ttl: Duration,
    span: Duration,
    proxy: Option<Proxy>,
}

impl<'a> SectionHistory<'a> {
    /// Of processes of `program`, a lock-taker, with the store at each of these URLs in turn. The first URL is also
    /// that of the test.
    pub fn new(program: &'a Path, urls: impl IntoIterator<Item = String>, ttl: Duration) -> Self {
        Self {
            program,
            urls: urls.into_iter().collect(),
            // Redis Cluster keeps the data of a tag together.
            name: format!("{{{}}}", ClientId::random()),
            ttl,
            span: SPAN,
            proxy: None,
        }
    }

    /// Lasts this long, if `LOCKKIT_SOAK` does not say otherwise.
    #[must_use]
    pub const fn lasting(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Some of the URLs lead to this proxy.
    #[must_use]
    pub fn behind(mut self, proxy: Proxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Runs them, and checks what they saw and what is stored.
    ///
    /// # Errors
    /// - [`Failure`] if a check fails, or the sections do not come to their end.
    pub async fn check(&self) -> Outcome {
        let url = self.urls.first();
        let url = url.ok_or_else(|| Failure::new("no URL"))?;
        let store = Arc::clone(lockkit::connect(url).await?.backend());
        let client = LockClient::builder_arc(store).lease(Lease::renewed(self.ttl));
        let lock = client.build()?.lock(&self.name)?;
        let sections = sections::open(url, lock.clone())?;
        sections.prepare().await?;
        let mut crowd = Crowd {
            history: self,
            lock,
            end: Instant::now(),
            takers: Vec::new(),
            started: 0,
            past: Vec::new(),
            done: Vec::new(),
        };
        // Long enough for each fault, also if one of them meets no holder at first.
        let span = soak_length(self.span)?.max(self.ttl * 8);
        crowd.run(span).await?;
        let (done, missing) = (crowd.counts(), crowd.missing());
        let dropped = self.proxy.as_ref().map(|it| it.counts().dropped_replies);
        let history = crowd.ended().await?;
        let stored = soon(sections.stored()).await??;
        let count = |phase| {
            let events = history.events().iter();
            let commits = events.filter(|it| it.op == Op::Write && it.phase == phase);
            commits.count()
        };
        println!(
            "{} sections wrote, {} were refused, of {} it is not known; {done}",
            stored.entries.len(),
            count(Phase::Fail),
            count(Phase::Invoke) - count(Phase::Fail) - count(Phase::Ok),
        );
        tokens_grow(&history)?;
        stale_writes_refused(&history)?;
        sections_follow(&history, &stored)?;
        let enough = stored.entries.len() >= FEWEST;
        ensure(enough, format!("{} sections", stored.entries.len()))?;
        ensure(missing.is_none(), format!("{missing:?} met no holder"))?;
        ensure(dropped != Some(0), "no reply was lost")
    }
}

/// What is done to a holder, or to the way of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Its process is stopped, and its hold broken.
    Break,
    /// Its process is killed.
    Kill,
    /// Its process is stopped for longer than its lease.
    Expire,
    /// All connections through the proxy are reset.
    Reset,
    /// Nothing passes the proxy for longer than a lease.
    Hold,
}

struct Crowd<'a> {
    history: &'a SectionHistory<'a>,
    lock: Lock,
    end: Instant,
    takers: Vec<Taker>,
    started: usize,
    /// What the killed saw.
    past: Vec<History>,
    /// What met a holder, or the way of requests.
    done: Vec<Fault>,
}

impl Crowd<'_> {
    async fn run(&mut self, span: Duration) -> Outcome {
        for _ in 0..PROCESSES {
            self.start_one().await?;
        }
        self.end = Instant::now() + span;
        for number in 0..PROCESSES {
            self.begin(number).await?;
        }
        self.lose_replies();
        let quiet = self.end - QUIET.min(span);
        let possible = FAULTS.into_iter().filter(|fault| self.may_make(*fault));
        let possible: Vec<_> = possible.collect();
        let mut number = 0;
        loop {
            sleep(Duration::from_millis(fastrand::u64(10..60))).await;
            if Instant::now() >= quiet {
                break;
            }
            // One that met no holder is made again.
            let fault = possible[number % possible.len()];
            if self.make(fault).await? {
                self.done.push(fault);
                number += 1;
            }
        }
        self.heal();
        Ok(())
    }

    fn may_make(&self, fault: Fault) -> bool {
        self.history.proxy.is_some() || !matches!(fault, Fault::Reset | Fault::Hold)
    }

    /// A fault that was not made.
    fn missing(&self) -> Option<Fault> {
        let mut faults = FAULTS.into_iter();
        faults.find(|fault| self.may_make(*fault) && !self.done.contains(fault))
    }

    /// Returns whether it met a holder, or the way of requests.
    async fn make(&mut self, fault: Fault) -> Outcome<bool> {
        let late = self.history.ttl.mul_f64(1.2);
        match (fault, &self.history.proxy) {
            (Fault::Break, _) => {
                let (taker, holds) = self.stop_a_holder().await?;
                self.break_lock().await;
                if fastrand::bool() {
                    self.next_holder(taker).await;
                }
                sleep(Duration::from_millis(fastrand::u64(0..40))).await;
                self.takers[taker].resume()?;
                Ok(holds)
            }
            (Fault::Expire, _) => {
                let (taker, holds) = self.stop_a_holder().await?;
                sleep(late).await;
                self.takers[taker].resume()?;
                Ok(holds)
            }
            (Fault::Kill, _) => self.kill_a_holder().await,
            (Fault::Reset, Some(proxy)) => {
                let made = || proxy.counts().connections;
                // Otherwise a lost reply may be the reason for a new connection.
                self.heal();
                let before = made();
                proxy.reset();
                let again = self.comes(|| made() > before).await;
                self.lose_replies();
                Ok(again)
            }
            (Fault::Hold, Some(proxy)) => {
                let flow = |flow| {
                    proxy.flow(Direction::Request, flow);
                    proxy.flow(Direction::Reply, flow);
                };
                let passed = || proxy.counts().request_bytes;
                flow(Flow::Hold);
                // What was on its way.
                sleep(Duration::from_millis(20)).await;
                let before = passed();
                sleep(late).await;
                let held = passed() == before;
                flow(Flow::Pass);
                Ok(self.comes(|| passed() > before).await && held)
            }
            (_, None) => Ok(false),
        }
    }

    /// Waits until it is so, for a lease at most. Returns whether it is.
    async fn comes(&self, so: impl Fn() -> bool) -> bool {
        let latest = Instant::now() + self.history.ttl;
        while !so() && Instant::now() < latest {
            sleep(Duration::from_millis(2)).await;
        }
        so()
    }

    fn heal(&self) {
        if let Some(proxy) = &self.history.proxy {
            proxy.heal();
        }
    }

    /// How often each fault was made.
    fn counts(&self) -> String {
        use Fault::{Break, Expire, Hold, Kill, Reset};
        let counts = [Break, Kill, Expire, Reset, Hold].map(|fault| {
            let count = self.done.iter().filter(|it| **it == fault).count();
            format!("{fault:?} {count}")
        });
        counts.join(", ")
    }

    async fn start_one(&mut self) -> Outcome {
        let (history, number) = (self.history, self.started);
        self.started += 1;
        let url = &history.urls[number % history.urls.len()];
        let taker = Taker::start(history.program, url, history.ttl).await?;
        self.takers.push(taker);
        Ok(())
    }

    async fn begin(&mut self, taker: usize) -> Outcome {
        let span = self.end - Instant::now();
        let (name, millis) = (self.lock.name(), span.as_millis());
        let command = format!("sections {name} {millis}");
        self.takers[taker].send(&command).await
    }

    /// Of 32 requests one does not come through, and the replies to two others are lost.
    fn lose_replies(&self) {
        let Some(proxy) = &self.history.proxy else {
            return;
        };
        proxy.judge(|_| match fastrand::u8(..32) {
            0 => Fate::Cut,
            1 | 2 => Fate::Drop(Dropped::Reset),
            _ => Fate::Pass,
        });
    }

    /// The process that holds the lock.
    async fn holder(&self) -> Option<usize> {
        let state = self.lock.inspect().await.ok()??;
        let label = state.holders.first()?.label.clone()?;
        self.takers.iter().position(|taker| {
            let pid = taker.pid().unwrap_or_default();
            label.contains(&format!(":{pid} "))
        })
    }

    /// Stops a process during its hold, if one can be met there. Returns whether it was.
    async fn stop_a_holder(&self) -> Outcome<(usize, bool)> {
        // All may have to connect again first.
        let latest = Instant::now() + self.history.ttl;
        while Instant::now() < latest {
            if let Some(taker) = self.holder().await {
                self.takers[taker].stop()?;
                if self.holder().await == Some(taker) {
                    return Ok((taker, true));
                }
                self.takers[taker].resume()?;
            }
            sleep(Duration::from_millis(2)).await;
        }
        let taker = fastrand::usize(..self.takers.len());
        self.takers[taker].stop()?;
        Ok((taker, false))
    }

    /// Waits until another process holds the lock, if it does not take long.
    async fn next_holder(&self, taker: usize) {
        for _ in 0..50 {
            match self.holder().await {
                Some(next) if next != taker => return,
                _ => sleep(Duration::from_millis(2)).await,
            }
        }
    }

    async fn break_lock(&self) {
        // If it fails, the hold ends later.
        drop(self.lock.break_lock().await);
    }

    /// Kills a process during its hold, and starts another in its place. Returns whether it held.
    async fn kill_a_holder(&mut self) -> Outcome<bool> {
        let (taker, holds) = self.stop_a_holder().await?;
        let mut taker = self.takers.swap_remove(taker);
        taker.kill().await?;
        // Else the others wait for the end of its lease.
        self.break_lock().await;
        // What it wrote before its end is still in the pipe.
        while taker.answer(self.history.ttl).await.is_ok() {}
        self.past.push(taker.history());
        self.heal();
        self.start_one().await?;
        self.begin(PROCESSES - 1).await?;
        self.lose_replies();
        Ok(holds)
    }

    /// Waits for the end of all, and returns what they saw.
    async fn ended(mut self) -> Outcome<History> {
        for taker in &mut self.takers {
            taker.answer(Duration::from_secs(20)).await?;
            self.past.push(taker.history());
        }
        Ok(History::merged(self.past))
    }
}
