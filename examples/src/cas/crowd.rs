//! Many who want to update the same thing, in one way or the other, and what it costs.

use std::time::Duration;

use lockkit::LockClient;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Case, Db, Turn};
use crate::Outcome;
use crate::server::Server;

/// How an update is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Before: `WATCH`, `MULTI`, `EXEC` and a loop.
    Watched,
    /// After: a lock and a fenced write.
    Locked,
}

/// When a contender has done enough.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Until {
    /// After so many updates.
    Turns(u64),
    /// After this time.
    Over(Duration),
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Seen {
    /// Updates that were done.
    pub done: u64,
    /// Updates that had to begin again.
    pub retries: u64,
    /// Updates in a second.
    pub per_second: f64,
    /// Half of the updates took no longer.
    pub median: Duration,
    /// All but one in a hundred took no longer.
    pub p99: Duration,
    /// Commands that clients sent for each update.
    pub commands: f64,
}

/// A contender: with connections of its own, as a process has.
struct Contender {
    number: usize,
    db: Db,
    locks: LockClient,
}

/// Lets so many contenders update at once.
///
/// # Errors
/// - If an update fails.
pub async fn run<C: Case>(
    server: &Server,
    case: &C,
    way: Way,
    contenders: usize,
    until: Until,
) -> Outcome<Seen> {
    let mut own = server.connect().await?;
    case.reset(&mut own).await?;
    let mut crowd = Vec::new();
    for number in 0..contenders {
        crowd.push(Contender {
            number,
            db: server.connect().await?,
            locks: lockkit::connect(server.url()).await?,
        });
    }
    let before = sent(&mut own, way).await?;
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for contender in crowd {
        tasks.spawn(contender.work(case.clone(), way, until, start));
    }
    let (mut times, mut retries) = (Vec::new(), 0);
    while let Some(ended) = tasks.join_next().await {
        let (its, again) = ended??;
        times.extend(its);
        retries += again;
    }
    let span = start.elapsed();
    let mut commands = sent(&mut own, way).await? - before;
    let done = u64::try_from(times.len())?;
    if way == Way::Locked {
        commands += done * C::READS;
    }
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied();
    Ok(Seen {
        done,
        retries,
        per_second: float(done) / span.as_secs_f64(),
        median: at(50).unwrap_or_default(),
        p99: at(99).unwrap_or_default(),
        commands: float(commands) / float(done.max(1)),
    })
}

impl Contender {
    async fn work<C: Case>(
        mut self,
        case: C,
        way: Way,
        until: Until,
        start: Instant,
    ) -> Outcome<(Vec<Duration>, u64)> {
        let (mut times, mut retries) = (Vec::new(), 0);
        for number in 0.. {
            let enough = match until {
                Until::Turns(turns) => number >= turns,
                Until::Over(span) => start.elapsed() >= span,
            };
            if enough {
                break;
            }
            let turn = Turn {
                contender: self.number,
                number,
            };
            let began = Instant::now();
            match way {
                Way::Watched => retries += case.watched(&mut self.db, turn).await?,
                Way::Locked => case.locked(&mut self.db, &self.locks, turn).await?,
            }
            times.push(began.elapsed());
        }
        Ok((times, retries))
    }
}

/// How many commands clients have sent so far. Scripts call commands themselves, which the server counts
/// too: of the way with locks only the scripts are counted here, and its reads are added.
async fn sent(db: &mut Db, way: Way) -> Outcome<u64> {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(db)
        .await?;
    let calls = info.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls: u64 = rest.split(',').next()?.parse().ok()?;
        let counts = match way {
            Way::Watched => !matches!(command, "info" | "hello" | "client|setinfo"),
            Way::Locked => matches!(command, "eval" | "evalsha" | "subscribe"),
        };
        counts.then_some(calls)
    });
    Ok(calls.sum())
}

fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
