//! Many waiters while no client releases.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::contention::float;
use conformance_tests::figures::{bound, share_of_a_core};
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

/// Lets each client do something at each pause, spread over it. Returns the part of a core that this costs the server.
async fn share_of_looks<F>(
    server: &RedisServer,
    pause: Duration,
    looks: impl Iterator<Item = impl Fn() -> F + Send + 'static>,
) -> Outcome<f64>
where
    F: Future<Output = Outcome> + Send,
{
    let start = Instant::now();
    let looks = (0..).zip(looks).map(|(number, look)| {
        let mut due = interval_at(start + pause * number / WAITERS, pause);
        spawn(async move {
            loop {
                due.tick().await;
                look().await?;
            }
            #[expect(unreachable_code, reason = "it gives the loop a type")]
            Outcome::Ok(())
        })
    });
    let _looks: Vec<_> = looks.collect();
    sleep(pause).await;
    share_of_a_core(server.process(), SPAN).await
}

/// Connects so many clients, some at once.
async fn connected<T: Send + 'static, F>(
    connect: impl Fn() -> F + Clone + Send + 'static,
) -> Outcome<Vec<T>>
where
    F: Future<Output = Outcome<T>> + Send,
{
    let tasks = (0..40).map(|part| {
        let connect = connect.clone();
        spawn(async move {
            let mut clients = Vec::new();
            for _ in (part..WAITERS).step_by(40) {
                clients.push(connect().await?);
            }
            Outcome::Ok(clients)
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut clients = Vec::new();
    for task in tasks {
        clients.extend(task.soon().await??);
    }
    Ok(clients)
}

/// Each has a client and a connection of its own, and asks as often as a client does.
pub(crate) async fn two_thousand_waiters_cost_the_server_little() -> Outcome {
    let server = Arc::new(RedisServer::forgetful().await?);
    let port = server.port();
    let stores = connected(move || async move {
        let store = RedisStore::builder().tcp("127.0.0.1", port);
        Ok(store.connect().await?)
    })
    .await?;
    let name = LockName::new("crowd")?;
    let holder = HolderId::new(ClientId::random(), 1);
    stores[0]
        .attempt(&Ticket::new(name.clone(), holder, TTL * 10))
        .await?;
    let pause = recheck(&stores[0].capabilities(), TTL);
    let looks = server.calls("evalsha").await?;
    let measured = Instant::now();
    let attempts = stores.into_iter().map(|store| {
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(name.clone(), holder, TTL);
        move || {
            let (store, ticket) = (store.clone(), ticket.clone());
            async move {
                store.attempt(&ticket).await?;
                Ok(())
            }
        }
    });
    let share = share_of_looks(&server, pause, attempts).await?;
    let looks = float(server.calls("evalsha").await? - looks) / measured.elapsed().as_secs_f64();
    let queued: u32 = server.run(&["LLEN", "lockkit_queue:{crowd}"]).await?;
    // What as many clients cost that ask nothing of it.
    let asker = Arc::clone(&server);
    let clients = connected(move || {
        let asker = Arc::clone(&asker);
        async move { Ok(asker.connect().await?) }
    })
    .await?;
    let pings = clients.into_iter().map(|client| {
        move || {
            let mut client = client.clone();
            async move { Ok(redis::cmd("PING").query_async(&mut client).await?) }
        }
    });
    let cost = share / share_of_looks(&server, pause, pings).await?;
    println!(
        "{WAITERS} waiters: {looks:.0} looks/s cost the server {:.1} % of a processor, {cost:.2} x as many PINGs",
        share * 100.0
    );
    ensure(queued == WAITERS, format!("{queued} stand in the queue"))?;
    let least = 0.9 * f64::from(WAITERS) / pause.as_secs_f64();
    ensure(looks > least, format!("only {looks:.0} looks/s"))?;
    ensure(cost <= 3.2, format!("{cost:.2} x as many PINGs"))?;
    // Of a core as it is: without optimisation the clients keep the machine busy, too.
    ensure(share <= bound(0.1, 0.2), format!("{:.1} %", share * 100.0))
}
