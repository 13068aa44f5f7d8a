//! Whether those who want one lock get it in turn, and how fast.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance_tests::contention::{Contender, SPAN, contend};
use conformance_tests::figures::{OPTIMISED, bound, median};
use conformance_tests::{Outcome, ensure};
use lockkit_core::store::lock;
use lockkit_core::{Lock, LockClient};
use lockkit_sql::{SqlStoreBuilder, Sqlite};
use tokio::time::Instant;

use crate::world::{Database, For};

/// One client of a lock. It notes how long it waits.
struct One {
    lock: Lock,
    waits: Arc<Mutex<Vec<Duration>>>,
}

impl Contender for One {
    async fn turn(&mut self) -> Outcome {
        let asked = Instant::now();
        let guard = self.lock.acquire().await?;
        lock(&self.waits).push(asked.elapsed());
        Ok(guard.release().await?)
    }
}

/// None of them pauses, and each has a connection of its own.
pub(crate) async fn eight_on_loopback_take_turns<D: Database>() -> Outcome {
    let server = D::start(For::Speed).await?;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(D::client_at(server.port(), false).await?);
    }
    let before = alone(&clients[0]).await?;
    let rate = take_turns(&clients).await?;
    let cycle = (before + alone(&clients[0]).await?) / 2;
    let cycles = 1.0 / (rate * cycle.as_secs_f64());
    println!("a turn takes as long as {cycles:.2} cycles of one client alone, {cycle:?}");
    if OPTIMISED {
        return ensure(rate >= 200.0, format!("{rate:.0} turns/s"));
    }
    // The clients take as much of the machine as the server does.
    ensure(cycles <= D::TURN, format!("{cycles:.2} cycles"))
}

/// How long a cycle takes that no other client delays.
async fn alone(client: &LockClient) -> Outcome<Duration> {
    let (lock, mut cycles) = (client.lock("solo")?, Vec::new());
    for _ in 0..200 {
        let start = Instant::now();
        lock.acquire().await?.release().await?;
        cycles.push(start.elapsed());
    }
    median(cycles)
}

pub(crate) async fn eight_at_a_file_take_turns() -> Outcome {
    let place = tempfile::tempdir()?;
    let path = place.path().join("locks.db").display().to_string();
    let mut clients = Vec::new();
    for _ in 0..8 {
        let store = SqlStoreBuilder::<Sqlite>::file(&path).connect().await?;
        clients.push(LockClient::new(store)?);
    }
    let rate = take_turns(&clients).await?;
    ensure(rate >= bound(200.0, 100.0), format!("{rate:.0} turns/s"))
}

/// Returns how many turns they take in a second.
async fn take_turns(clients: &[LockClient]) -> Outcome<f64> {
    // Their connections, and those that listen.
    let first = clients.iter().map(|client| client.lock("crowd"));
    contend(first.collect::<Result<_, _>>()?, Duration::from_secs(1)).await?;
    let waits = Arc::<Mutex<Vec<Duration>>>::default();
    let mut crowd = Vec::new();
    for client in clients {
        let (lock, waits) = (client.lock("crowd")?, Arc::clone(&waits));
        crowd.push(One { lock, waits });
    }
    let turns = contend(crowd, SPAN).await?;
    // The first ones find a free lock, and the last ones no other waiter.
    let mut waits = lock(&waits).split_off(8);
    waits.truncate(waits.len().saturating_sub(8));
    waits.sort();
    let longest = waits.last().copied().unwrap_or_default();
    let most = waits
        .get(waits.len() * 99 / 100)
        .copied()
        .unwrap_or_default();
    let (usual, rate, fair) = (median(waits)?, turns.per_second(), turns.fairness());
    println!(
        "eight, loopback: {rate:.0} turns/s, Jain {fair:.3}, longest wait {longest:?}, p99 {most:?}, median {usual:?}"
    );
    ensure(fair >= 0.99, format!("Jain {fair:.3}"))?;
    // A busy machine stalls all of them now and then, for longer than a turn takes.
    let waited = if OPTIMISED { longest } else { most };
    ensure(
        waited <= usual * 3,
        format!("waited {waited:?}, as a rule {usual:?}"),
    )?;
    Ok(rate)
}
