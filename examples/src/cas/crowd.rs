//! Many contenders that update the same data in one of two ways, and what it costs.

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
    /// After: a section under a lock.
    Locked,
}

/// When a contender has done enough.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Until {
    /// After this number of updates.
    Turns(u64),
    /// After this time.
    Over(Duration),
}

/// What a run measured.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Seen {
    /// Updates that were done.
    pub done: u64,
    /// Updates that were repeated.
    pub retries: u64,
    /// Updates in a second.
    pub per_second: f64,
    /// The median time of an update.
    pub median: Duration,
    /// The 99th percentile of the times.
    pub p99: Duration,
    /// Commands that clients sent for each update.
    pub commands: f64,
}

/// A contender with its own connections, like a process.
struct Contender {
    number: usize,
    db: Db,
    locks: LockClient,
}

/// Runs this number of contenders at once.
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
    let commands = sent(&mut own, way).await? - before;
    let done = u64::try_from(times.len())?;
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

/// Runs a case both ways with 64 contenders, prints what each took, and checks that both end in the same
/// state.
///
/// # Errors
/// - If an update fails.
///
/// # Panics
/// If the two ways end in different states.
#[expect(clippy::print_stdout, reason = "it is for people")]
pub async fn compare<C: Case>(server: &Server, case: &C) -> Outcome {
    let mut states = Vec::new();
    for way in [Way::Watched, Way::Locked] {
        let seen = run(server, case, way, 64, Until::Turns(3)).await?;
        println!(
            "{way:?}: {} updates by 64 contenders, {} retries, p99 {:?}",
            seen.done, seen.retries, seen.p99
        );
        states.push(case.state(&mut server.connect().await?).await?);
    }
    assert_eq!(states[0], states[1], "both ways end in the same state");
    let shown = &states[0][..states[0].len().min(64)];
    println!("both end with: {}", shown.join(", "));
    Ok(())
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
                Way::Locked => case.locked(&self.locks, turn).await?,
            }
            times.push(began.elapsed());
        }
        Ok((times, retries))
    }
}

/// How many commands clients have sent so far. The server also counts the commands that scripts call: for
/// the locked way, this counts only the scripts.
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
