//! What the crowd may see, and what the server may keep of it.

use std::collections::HashMap;
use std::time::Duration;

use conformance_tests::checker::{
    check, everyone_served, no_loss_without_a_stop, stale_writes_refused,
};
use conformance_tests::history::{History, Op, Phase};
use conformance_tests::servers::RedisServer;
use conformance_tests::task::soak_length;
use conformance_tests::{Failure, Outcome, ensure};
use tokio::time::{Instant, sleep};

use crate::burners::Burners;
use crate::crowd::{Crowd, name};

/// A busy machine with more processes than processors renews within it all the same.
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const LOCKS: usize = 4;
const CLIENTS: usize = 32;
/// The most that are stopped at once, so that each lock is handed on between two stops.
const STOPPED: usize = 4;

pub(crate) async fn stopped_holders_write_nothing_and_the_others_lose_nothing() -> Outcome {
    let span = soak_length(Duration::from_secs(10))?.max(TTL * 4);
    let server = RedisServer::forgetful().await?;
    let mut crowd = Crowd::start(&server, CLIENTS).await?;
    let burners = Burners::start();
    let start = Instant::now();
    crowd.work(span).await?;
    // The last ones resume before the end, so that the test sees what they do then.
    while start.elapsed() < span - TTL / 2 {
        if crowd.stopped() < STOPPED && start.elapsed() < span - TTL * 3 {
            crowd.stop_a_holder().await?;
        }
        crowd.resume(false)?;
        sleep(Duration::from_millis(20)).await;
    }
    crowd.resume(true)?;
    let processes = crowd.processes();
    let history = crowd.history(span + Duration::from_secs(30)).await?;
    drop(burners);
    let seen = Seen::of(&history);
    println!(
        "{CLIENTS} processes, {span:?} at full load: {} holds, {} holders stopped for longer than \
         their lease, {} of their writes refused, {} done before they were stopped or while their \
         lease stood",
        seen.holds, seen.stale, seen.refused, seen.written
    );
    check(&history)?;
    stale_writes_refused(&history)?;
    no_loss_without_a_stop(&history)?;
    everyone_served(&history, TTL * 5)?;
    for process in processes {
        let served = seen.served.get(&process).copied().unwrap_or_default();
        ensure(served > 1, format!("process {process} was never served"))?;
    }
    let least = span.as_secs() / 4;
    let enough = seen.stale >= least && seen.refused >= least;
    ensure(enough, "too few holders were stopped to tell")?;
    ensure(seen.done_after_a_stop == 0, "a stopped holder wrote")?;
    ensure(
        seen.looks_after_a_stop == 0,
        "a stopped holder passed its check",
    )?;
    in_order(&server).await
}

/// What the server keeps: the tokens of all writes, in the order in which it carried them out.
async fn in_order(server: &RedisServer) -> Outcome {
    for number in 0..LOCKS {
        let list = format!("{}/written", name(number));
        let tokens: Vec<u64> = server.run(&["LRANGE", &list, "0", "-1"]).await?;
        ensure(!tokens.is_empty(), format!("nothing was written to {list}"))?;
        let Some(pair) = tokens.windows(2).find(|pair| pair[0] > pair[1]) else {
            continue;
        };
        return Err(Failure::new(format!("{} after {}", pair[1], pair[0])));
    }
    Ok(())
}

/// Figures of a history.
#[derive(Default)]
struct Seen {
    holds: u64,
    /// Holds of processes that were stopped in the middle of them for longer than the lease.
    stale: u64,
    refused: u64,
    written: u64,
    /// Writes that began after such a stop and were done all the same.
    done_after_a_stop: u64,
    /// Looks after such a stop at which the guard stood.
    looks_after_a_stop: u64,
    /// Holds by process.
    served: HashMap<u32, u64>,
}

/// A hold under way.
#[derive(Clone, Copy)]
struct Turn {
    hold: u64,
    granted: u64,
    stale: bool,
    /// Whether the write under way began after the stop.
    writes_late: bool,
}

impl Seen {
    fn of(history: &History) -> Self {
        let ttl = u64::try_from(TTL.as_nanos()).unwrap_or(u64::MAX);
        let mut seen = Self::default();
        let mut turns: HashMap<u32, Turn> = HashMap::new();
        let mut stopped: HashMap<u32, u64> = HashMap::new();
        for event in history.events() {
            let process = event.process;
            let turn = turns.get_mut(&process);
            let turn = turn.filter(|turn| turn.hold == event.hold || event.hold == 0);
            match (event.op, event.phase, turn) {
                (Op::Acquire, Phase::Ok, _) => {
                    seen.holds += 1;
                    *seen.served.entry(process).or_default() += 1;
                    let turn = Turn {
                        hold: event.hold,
                        granted: event.at,
                        stale: false,
                        writes_late: false,
                    };
                    turns.insert(process, turn);
                }
                (Op::Fault, _, _) => {
                    stopped.insert(process, event.at);
                }
                (Op::Heal, _, Some(turn)) => {
                    let since = stopped.remove(&process).unwrap_or(event.at);
                    if turn.granted < since && event.at - since > ttl + ttl / 10 {
                        seen.stale += u64::from(!turn.stale);
                        turn.stale = true;
                    }
                }
                (Op::Check, Phase::Ok, Some(turn)) if turn.stale => seen.looks_after_a_stop += 1,
                (Op::Write, Phase::Invoke, Some(turn)) => turn.writes_late = turn.stale,
                (Op::Write, Phase::Ok, Some(turn)) => {
                    seen.written += 1;
                    seen.done_after_a_stop += u64::from(turn.writes_late);
                }
                (Op::Write, Phase::Fail, Some(_)) => seen.refused += 1,
                (Op::Release, _, Some(_)) => drop(turns.remove(&process)),
                _ => {}
            }
        }
        seen
    }
}
