//! Many waiters while no client releases.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::contention::float;
use conformance_tests::figures::share_of_a_core;
use conformance_tests::servers::RedisServer;
use conformance_tests::task::spawn;
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::Ticket;
use lockkit_core::{ClientId, DistributedLock, HolderId, LockName, recheck};
use lockkit_redis::RedisStore;
use tokio::time::{Instant, interval_at, sleep};

const WAITERS: u32 = 2_000;
const TTL: Duration = Duration::from_secs(30);
const SPAN: Duration = Duration::from_secs(9);

/// Each has a client and a connection of its own, and asks as often as a client does.
pub(crate) async fn two_thousand_waiters_cost_the_server_little() -> Outcome {
    let server = Arc::new(RedisServer::forgetful().await?);
    let mut tasks = Vec::new();
    for part in 0..40 {
        let port = server.port();
        tasks.push(spawn(async move {
            let mut stores = Vec::new();
            for _ in (part..WAITERS).step_by(40) {
                let store = RedisStore::builder().tcp("127.0.0.1", port);
                stores.push(store.connect().await?);
            }
            Outcome::Ok(stores)
        }));
    }
    let mut stores = Vec::new();
    for task in tasks {
        stores.extend(task.soon().await??);
    }
    let name = LockName::new("crowd")?;
    let holder = HolderId::new(ClientId::random(), 1);
    stores[0]
        .attempt(&Ticket::new(name.clone(), holder, TTL * 10))
        .await?;
    let pause = recheck(&stores[0].capabilities(), TTL);
    let start = Instant::now();
    let mut waiting = Vec::new();
    for (number, store) in (0..).zip(stores) {
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(name.clone(), holder, TTL);
        let mut looks = interval_at(start + pause * number / WAITERS, pause);
        waiting.push(spawn(async move {
            loop {
                looks.tick().await;
                store.attempt(&ticket).await?;
            }
            #[expect(unreachable_code, reason = "it gives the loop a type")]
            Outcome::Ok(())
        }));
    }
    sleep(pause).await;
    let looks = server.calls("evalsha").await?;
    let measured = Instant::now();
    let share = share_of_a_core(server.process(), SPAN).await?;
    let looks = float(server.calls("evalsha").await? - looks) / measured.elapsed().as_secs_f64();
    let queued: u32 = server.run(&["LLEN", "lockkit_queue:{crowd}"]).await?;
    println!(
        "{WAITERS} waiters: {looks:.0} looks/s cost the server {:.1} % of a processor",
        share * 100.0
    );
    ensure(queued == WAITERS, format!("{queued} stand in the queue"))?;
    let least = 0.9 * f64::from(WAITERS) / pause.as_secs_f64();
    ensure(looks > least, format!("only {looks:.0} looks/s"))?;
    ensure(share <= 0.1, format!("{:.1} %", share * 100.0))
}
