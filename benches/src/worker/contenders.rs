//! Contenders that take turns, or update one number.

use std::time::Duration;

use lockkit::Lock;
use tokio::task::{JoinSet, consume_budget};
use tokio::time::{Instant, timeout_at};

use super::Answer;
use crate::bare::Contender;
use crate::counter::Update;
use crate::failure::Outcome;
use crate::latency::{histogram, record};
use crate::turns::Taken;

/// One of many.
pub(super) enum Member {
    Lock(Lock),
    Bare(Box<dyn Contender>),
    Update(Box<dyn Update>),
}

/// All take turns until `span` is over; `first` is the number of the first.
pub(super) async fn turns(
    members: Vec<Member>,
    first: usize,
    span: Duration,
) -> Outcome<(Answer, Vec<Member>)> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    let mut members: Vec<_> = members.into_iter().enumerate().collect();
    // Where a round is short, those who come first are served more often: let it be others each time.
    fastrand::shuffle(&mut members);
    for (number, member) in members {
        tasks.spawn(async move { (number, member.turns(start + span).await) });
    }
    let mut done = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let (number, ended) = ended?;
        done.push((number, ended?));
    }
    let took = start.elapsed();
    done.sort_by_key(|(number, _)| *number);
    let mut waits = histogram()?;
    let (mut counts, mut members, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (member, taken, seen)) in done {
        waits.add(seen)?;
        counts.push(u64::try_from(taken.count())?);
        all.extend(taken.of(first + number));
        members.push(member);
    }
    let waits = waits.iter_recorded();
    let waits = waits.map(|value| (value.value_iterated_to(), value.count_at_value()));
    let waits = waits.collect();
    let answer = Answer::Turns {
        counts,
        took,
        waits,
        taken: all,
    };
    Ok((answer, members))
}

type Seen = hdrhistogram::Histogram<u64>;

impl Member {
    /// Takes turns until the end. A wait that the end cuts off counts with what it had lasted: else those
    /// who starve would not be seen.
    async fn turns(mut self, end: Instant) -> Outcome<(Self, Taken, Seen)> {
        let (mut taken, mut waits) = (Taken::default(), histogram()?);
        loop {
            // Where nothing is waited for, the others of this thread get their turns all the same.
            consume_budget().await;
            let began = Instant::now();
            if began >= end {
                return Ok((self, taken, waits));
            }
            match &mut self {
                Self::Lock(lock) => match timeout_at(end, lock.acquire()).await {
                    Ok(guard) => {
                        record(&mut waits, began.elapsed());
                        let guard = guard?;
                        taken.now();
                        guard.release().await?;
                    }
                    Err(_) => record(&mut waits, began.elapsed()),
                },
                Self::Bare(contender) => {
                    contender.turn(&mut taken).await?;
                    record(&mut waits, began.elapsed());
                }
                Self::Update(update) => {
                    let mut done = false;
                    while !done && Instant::now() < end {
                        done = update.attempt().await?;
                    }
                    record(&mut waits, began.elapsed());
                    if done {
                        taken.now();
                    }
                }
            }
        }
    }
}
