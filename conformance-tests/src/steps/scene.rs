//! One step on a lock of its own, while a request of it fails: the tickets, and what must become of them.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkit_core::Outcome as Told;
use lockkit_core::contract::{Attempt, LockState, Mode, Release, Renewal, Ticket};
use lockkit_core::{BackendError, ClientId, DistributedLock, HolderId, LockName, Queueing};
use tokio::time::{Instant, sleep};

use super::step::{Call, Step};
use crate::failure::{Outcome, ensure};
use crate::task::{repeated, within};

/// The note of a hold.
const NOTE: &str = "on shard 7";

/// Whether a step returned what it must, or its error.
pub type Answer = Result<bool, BackendError>;

/// The stores of a test.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "each test writes all of it")]
pub struct Stores<'a> {
    /// Its requests fail.
    pub faulty: &'a dyn DistributedLock,
    /// Its requests do not.
    pub sound: &'a dyn DistributedLock,
    /// Other tickets hold and wait through this one.
    pub others: &'a dyn DistributedLock,
    /// For how long requests may go on to fail after the step.
    pub patience: Duration,
    /// For how long what is left of the step may keep other clients out.
    pub kept_out: Duration,
}

/// One step on a lock of its own: the tickets, and what must become of them.
#[derive(Clone, Debug)]
pub struct Scene {
    step: Step,
    /// The ticket of the step.
    pub mine: Ticket,
    before: Vec<Ticket>,
    later: Option<Ticket>,
    ttl: Duration,
}

impl Scene {
    /// The tickets of a step, on a lock that has no other one.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if this is no name of a lock.
    pub fn new(step: Step, name: &str, ttl: Duration) -> Outcome<Self> {
        let name = LockName::new(name)?;
        let ticket = |mode| ticket(&name, mode, ttl);
        Ok(Self {
            step,
            mine: ticket(step.mode).with_enqueue(step.enqueues),
            before: step.before.iter().copied().map(ticket).collect(),
            later: step.later.map(ticket),
            ttl,
        })
    }

    fn is_mine(&self, ticket: &Ticket) -> bool {
        ticket.holder == self.mine.holder
    }

    /// One that was never attempted.
    fn next(&self, mode: Mode) -> Ticket {
        ticket(&self.mine.name, mode, self.ttl)
    }

    /// The tickets that hold or wait, in their order: once the step is done, or before.
    fn queue(&self, done: bool) -> Vec<&Ticket> {
        let call = self.step.call;
        let is_there = match call {
            Call::Attempt if done => self.step.enqueues || !self.is_blocked(),
            Call::Adopt if done => true,
            Call::Release | Call::Break if done => false,
            _ => self.step.is_known,
        };
        let mine = is_there.then_some(&self.mine);
        let is_before = |_: &&Ticket| !(done && matches!(call, Call::Adopt | Call::Break));
        let is_later = |_: &&Ticket| !(done && call == Call::Break);
        let before = self.before.iter().filter(is_before);
        let later = self.later.iter().filter(is_later);
        before.chain(mine).chain(later).collect()
    }

    /// Those of them that hold.
    fn holders(&self, done: bool) -> Vec<&Ticket> {
        let mut queue = self.queue(done);
        let modes: Vec<_> = queue.iter().map(|ticket| ticket.mode).collect();
        let holds = |at: &usize| fits(modes[*at], &modes[..*at]);
        queue.truncate((0..modes.len()).take_while(holds).count());
        queue
    }

    /// Whether the ticket of the step has to wait for others.
    fn is_blocked(&self) -> bool {
        self.step.is_foreign || !fits(self.step.mode, self.step.before)
    }

    /// Carries out the step while a request of it fails, judges what it returns, and gives all back. Returns whether a
    /// request has failed, as `disarm` says.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if the answer is wrong, or what is left keeps other clients out.
    pub async fn run(
        &self,
        stores: &Stores<'_>,
        arm: impl FnOnce() + Send,
        disarm: impl FnOnce() -> bool + Send,
    ) -> Outcome<bool> {
        self.begin(stores).await?;
        arm();
        let answer = self.carry_out(stores.faulty).await;
        let struck = disarm();
        self.judge(stores, &answer, struck).await?;
        self.give_back(stores, &answer).await?;
        self.end(stores).await?;
        Ok(struck)
    }

    /// Makes what the step finds.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if a store fails or grants what it must not, or refuses what it must grant.
    pub async fn begin(&self, stores: &Stores<'_>) -> Outcome {
        let Stores { faulty, others, .. } = *stores;
        if self.step.is_used {
            let first = self.next(Mode::Exclusive);
            stores.attempt(others, &first, true).await?;
            stores.release(others, &first).await?;
        }
        let holders = self.holders(false).len();
        for (place, ticket) in self.queue(false).into_iter().enumerate() {
            let store = if self.is_mine(ticket) { faulty } else { others };
            stores.attempt(store, ticket, place < holders).await?;
        }
        Ok(())
    }

    /// Carries out the step.
    ///
    /// # Errors
    /// - [`BackendError`] of the store.
    pub async fn carry_out(&self, store: &dyn DistributedLock) -> Answer {
        let (mine, name) = (&self.mine, &self.mine.name);
        let fits = |attempt| {
            let granted = matches!(attempt, Attempt::Granted(_));
            granted == (self.step.call == Call::Adopt || !self.is_blocked())
        };
        Ok(match self.step.call {
            Call::Attempt => fits(store.attempt(mine).await?),
            Call::Adopt => fits(store.adopt(self.before[0].holder, mine).await?),
            Call::Watch => {
                let mut watch = store.watch(mine).await?;
                // It has no news, but it may send requests meanwhile.
                let news = within(Duration::from_millis(100), watch.changed()).await;
                news.map_or(Ok(true), |news| news.map(|_| true))?
            }
            Call::Renew => {
                let renewed = store.renew(std::slice::from_ref(mine)).await.pop();
                matches!(renewed.transpose()?, Some(Renewal::Renewed { .. }))
            }
            Call::Release if self.is_blocked() => store.release(mine).await? == Release::NotHeld,
            Call::Release => store.release(mine).await? == Release::Released,
            Call::Break => store.break_lock(name).await?.is_some(),
            Call::Note => store.note(mine, NOTE).await?,
            Call::Inspect => store.inspect(name).await?.is_some(),
            Call::List => store.list(name.as_str()).await?.len() == 1,
        })
    }

    /// Another client sees what the step says that it has done, or that it has done nothing. `struck`: whether a request
    /// has failed.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if the answer is wrong.
    pub async fn judge(&self, stores: &Stores<'_>, answer: &Answer, struck: bool) -> Outcome {
        ensure(
            *answer.as_ref().unwrap_or(&true),
            "it returns something else",
        )?;
        let outcome = answer.as_ref().err().map(BackendError::outcome);
        let is_known = outcome != Some(Told::Indeterminate);
        // On a busy machine a reply may come late by itself.
        let has_reason = outcome.is_none() || struck || !is_known;
        ensure(has_reason, format!("{answer:?}, but no request failed"))?;
        let may_be = is_known || self.step.may_write;
        ensure(may_be, format!("nothing was written, but {answer:?}"))?;
        let done = outcome.is_none();
        if is_known && !self.step.is_foreign {
            let name = &self.mine.name;
            let seen = repeated(stores.patience, || stores.sound.inspect(name)).await?;
            let counts = stores.sound.capabilities().queueing == Queueing::Fifo;
            let is_so = self.is_so(done, seen.as_ref(), counts);
            ensure(is_so, format!("{answer:?}, but {seen:?}"))?;
        }
        let held = |done| self.step.is_foreign || !self.holders(done).is_empty();
        if held(done) && (is_known || held(true)) {
            let next = self.next(Mode::Exclusive).with_enqueue(false);
            stores.attempt(stores.sound, &next, false).await?;
        }
        Ok(())
    }

    /// Whether another client sees what it must: `counts` those that wait.
    fn is_so(&self, done: bool, seen: Option<&LockState>, counts: bool) -> bool {
        let holders = self.holders(done);
        let note = (done && self.step.call == Call::Note).then_some(NOTE);
        let expected = holders.iter().map(|it| {
            let note = note.filter(|_| self.is_mine(it));
            (it.holder.to_string(), note)
        });
        let found = seen.into_iter().flat_map(|state| &state.holders);
        let found = found.map(|it| (it.id.clone(), it.note.as_deref()));
        let (expected, found): (BTreeSet<_>, BTreeSet<_>) = (expected.collect(), found.collect());
        // A repeated attempt or a release that is rejected may have given up the place.
        let counts = counts && (done || !self.step.is_known);
        let waiters = u32::try_from(self.queue(done).len() - holders.len()).ok();
        let waits = seen.map_or(Some(0), |state| state.waiters);
        found == expected && (!counts || waits == waiters)
    }

    /// Releases the ticket of the step as a client does: not where nothing of it can be there.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if that goes on to fail.
    pub async fn give_back(&self, stores: &Stores<'_>, answer: &Answer) -> Outcome {
        let may_stand = match answer {
            Ok(_) => self.queue(true).iter().any(|it| self.is_mine(it)),
            Err(error) => self.step.is_known || error.outcome() == Told::Indeterminate,
        };
        if may_stand {
            stores.release(stores.faulty, &self.mine).await?;
        }
        Ok(())
    }

    /// Other clients get the lock: beside those that hold before, and alone. Then nothing of the scene is left.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if they do not.
    pub async fn end(&self, stores: &Stores<'_>) -> Outcome {
        let before = self.step.before;
        if let Some(mode) = before.first().filter(|mode| fits(**mode, before)) {
            self.is_served(stores, *mode).await?;
        }
        for ticket in self.before.iter().chain(&self.later) {
            stores.release(stores.others, ticket).await?;
        }
        self.is_served(stores, Mode::Exclusive).await?;
        if self.step.call == Call::Break && self.step.is_known {
            // Its client learns of the break later.
            stores.release(stores.faulty, &self.mine).await?;
        }
        Ok(())
    }

    async fn is_served(&self, stores: &Stores<'_>, mode: Mode) -> Outcome {
        let (next, began) = (self.next(mode), Instant::now());
        loop {
            let attempt = repeated(stores.patience, || stores.sound.attempt(&next)).await?;
            if matches!(attempt, Attempt::Granted(_)) {
                return stores.release(stores.sound, &next).await;
            }
            let late = began.elapsed() >= stores.kept_out;
            ensure(!late, "other clients are kept out")?;
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Stores<'_> {
    async fn attempt(&self, store: &dyn DistributedLock, ticket: &Ticket, holds: bool) -> Outcome {
        let attempt = repeated(self.patience, || store.attempt(ticket)).await?;
        let is_so = matches!(attempt, Attempt::Granted(_)) == holds;
        ensure(is_so, format!("{attempt:?} for {}", ticket.holder))
    }

    async fn release(&self, store: &dyn DistributedLock, ticket: &Ticket) -> Outcome {
        repeated(self.patience, || store.release(ticket)).await?;
        Ok(())
    }
}

fn ticket(name: &LockName, mode: Mode, ttl: Duration) -> Ticket {
    let holder = HolderId::new(ClientId::random(), 1);
    Ticket::new(name.clone(), holder, ttl).with_mode(mode)
}

/// Whether a ticket may hold beside others.
fn fits(mode: Mode, others: &[Mode]) -> bool {
    let exclusive = others.iter().any(|other| other.is_exclusive());
    u32::try_from(others.len()).is_ok_and(|count| mode.fits(count, exclusive))
}

#[cfg(test)]
mod tests {
    use lockkit_core::memory::MemoryStore;

    use super::*;
    use crate::steps::{WRITER, step};

    const STEPS: [Step; 5] = [
        step("attempt", Call::Attempt),
        step("wait", Call::Attempt).behind(WRITER),
        step("read", Call::Attempt)
            .mode(Mode::Read)
            .behind(&[Mode::Read]),
        step("release", Call::Release).ahead_of(Mode::Exclusive),
        step("break", Call::Break).used(),
    ];

    /// What becomes of an answer of a step that was carried out, or was not.
    async fn judged(step: Step, done: bool, answer: Answer) -> Outcome {
        let sound = MemoryStore::new();
        let faulty = sound.connect();
        let stores = Stores {
            faulty: &faulty,
            sound: &sound,
            others: &sound,
            patience: Duration::ZERO,
            kept_out: Duration::ZERO,
        };
        let scene = Scene::new(step, "jobs", Duration::from_secs(60)).unwrap();
        scene.begin(&stores).await.unwrap();
        if done {
            assert!(scene.carry_out(&faulty).await.unwrap(), "{step:?}");
        }
        scene.judge(&stores, &answer, true).await?;
        scene.give_back(&stores, &answer).await.unwrap();
        scene.end(&stores).await.unwrap();
        Ok(())
    }

    #[tokio::test]
    async fn wrong_answers_are_noticed() {
        let failed = |outcome| Err(BackendError::new("memory", "test", outcome, "on purpose"));
        for step in STEPS {
            for done in [true, false] {
                let rejected = judged(step, done, failed(Told::Rejected)).await;
                assert_eq!(rejected.is_err(), done, "{step:?}");
                let succeeded = judged(step, done, Ok(true)).await;
                assert_eq!(succeeded.is_ok(), done, "{step:?}");
                judged(step, done, failed(Told::Indeterminate))
                    .await
                    .unwrap();
                judged(step, done, Ok(false)).await.unwrap_err();
            }
        }
    }
}
