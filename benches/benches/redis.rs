//! The Redis store against what Redis itself can do: ratios in one run, on a server of its own.
//!
//! `cargo bench -p lockkit-bench --bench redis` prints a table. It needs `redis-server`.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "it prints what it measured, and ends when something fails"
)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::{RedisServer, guardian};
use lockkit_core::{Lease, LockClient};
use lockkit_redis::RedisStore;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Script, Value};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const ACQUIRE: &str = concat!(
    include_str!("../../lockkit-redis/src/scripts/queue.lua"),
    include_str!("../../lockkit-redis/src/scripts/acquire.lua")
);
const RELEASE: &str = concat!(
    include_str!("../../lockkit-redis/src/scripts/queue.lua"),
    include_str!("../../lockkit-redis/src/scripts/release.lua")
);
/// A list as queue, without leases, tokens or heartbeats: nothing that passes turns on can do less.
const BARE_TAKE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX') then return 1 end
    redis.call('RPUSH', KEYS[2], ARGV[1]) return 0";
const BARE_PASS: &str = "local next = redis.call('LPOP', KEYS[2])
    if next then redis.call('SET', KEYS[1], next) redis.call('PUBLISH', next, '1')
    else redis.call('DEL', KEYS[1]) end return 1";
const SPAN: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    if let Some(code) = guardian::serve() {
        return code;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(measure());
    ExitCode::SUCCESS
}

async fn measure() {
    let guard = std::env::current_exe().unwrap();
    let words = ["--appendonly", "no", "--slowlog-log-slower-than", "10000"];
    let server = RedisServer::start(&guard, words).await.unwrap();
    let direct = SocketAddr::from(([127, 0, 0, 1], server.port()));
    solo(direct).await;
    many_tasks(direct).await;
    for count in [8, 64] {
        let bare = bare_list(direct, count).await;
        let ours = contend(clients(direct, count).await, &server).await;
        println!("  hand-offs against a bare list: {:.2}", ours / bare);
    }
    println!("64 tasks of one client on one lock:");
    contend(vec![client(direct).await; 64], &server).await;
    through_a_proxy(direct, &server).await;
    many_holds(direct, &server).await;
}

async fn client(at: SocketAddr) -> LockClient {
    let store = RedisStore::builder().tcp(at.ip().to_string(), at.port());
    LockClient::new(store.connect().await.unwrap()).unwrap()
}

async fn clients(at: SocketAddr, count: usize) -> Vec<LockClient> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(client(at).await);
    }
    clients
}

async fn bare(at: SocketAddr) -> (MultiplexedConnection, mpsc::UnboundedReceiver<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let options = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Message {
                let _ = sender.send(());
            }
            Ok::<(), std::convert::Infallible>(())
        });
    let url = format!("redis://{at}/?protocol=resp3");
    let settings = redis::IntoConnectionInfo::into_connection_info(url.as_str()).unwrap();
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = Client::open(settings.set_tcp_settings(tcp)).unwrap();
    let connection = client.get_multiplexed_async_connection_with_config(&options);
    (connection.await.unwrap(), receiver)
}

/// The store's own two steps, sent by the client library alone.
struct BareSteps {
    connection: MultiplexedConnection,
    acquire: Script,
    release: Script,
}

impl BareSteps {
    async fn new(at: SocketAddr) -> Self {
        Self {
            connection: bare(at).await.0,
            acquire: Script::new(ACQUIRE),
            release: Script::new(RELEASE),
        }
    }

    async fn cycle(&self, name: &str, ticket: &str) {
        let keys = [
            name.to_owned(),
            format!("redisson_lock_token:{{{name}}}"),
            format!("lockkit_queue:{{{name}}}"),
            format!("lockkit_wait:{{{name}}}"),
            format!("lockkit_gone:{{{name}}}:{ticket}"),
        ];
        let mut connection = self.connection.clone();
        let with = |script: &Script, words: &[&str]| {
            let mut call = redis::cmd("EVALSHA");
            call.arg(script.get_hash())
                .arg(5)
                .arg(&keys)
                .arg("604800000")
                .arg(ticket)
                .arg(words);
            call
        };
        let take = with(
            &self.acquire,
            &["30000", "1", "9000", "1", "lockkit_client:x"],
        );
        if take.query_async::<Value>(&mut connection).await.is_err() {
            // The first time ever.
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD")
                .arg(ACQUIRE)
                .exec_async(&mut connection)
                .await
                .unwrap();
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD")
                .arg(RELEASE)
                .exec_async(&mut connection)
                .await
                .unwrap();
            take.exec_async(&mut connection).await.unwrap();
        }
        let give = with(
            &self.release,
            &[&format!("redisson_lock__channel:{{{name}}}"), "0"],
        );
        give.exec_async(&mut connection).await.unwrap();
    }
}

async fn solo(at: SocketAddr) {
    let client = client(at).await;
    let lock = client.lock("solo").unwrap();
    let steps = BareSteps::new(at).await;
    let ticket = "3f2b8c1e-7d9a-4b6e-9c55-0a1b2c3d4e5f:1";
    let mut ratios = Vec::new();
    for round in 0..15 {
        let start = Instant::now();
        for _ in 0..1000 {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        let ours = start.elapsed();
        let start = Instant::now();
        for _ in 0..1000 {
            steps.cycle("bare", ticket).await;
        }
        let bare = start.elapsed();
        if round > 0 {
            ratios.push((
                ours.as_secs_f64() / bare.as_secs_f64(),
                ours / 1000,
                bare / 1000,
            ));
        }
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, ours, bare) = ratios[ratios.len() / 2];
    println!("acquire + release, loopback: {ours:?}, bare scripts {bare:?}, ratio {ratio:.3}");
    let guard = lock.acquire().await.unwrap();
    let start = Instant::now();
    for _ in 0..1000 {
        drop(guard.reenter().unwrap());
    }
    println!("reentry: {:?}", start.elapsed() / 1000);
}

async fn many_tasks(at: SocketAddr) {
    let client = client(at).await;
    let mut rounds = Vec::new();
    for _ in 0..11 {
        let mut tasks = JoinSet::new();
        for task in 0..64 {
            let lock = client.lock(format!("own-{task}")).unwrap();
            tasks.spawn(async move {
                let (mut done, end) = (0_u64, Instant::now() + SPAN / 8);
                while Instant::now() < end {
                    lock.acquire().await.unwrap().release().await.unwrap();
                    done += 1;
                }
                done
            });
        }
        let ours: u64 = tasks.join_all().await.into_iter().sum();
        let steps = Arc::new(BareSteps::new(at).await);
        let mut tasks = JoinSet::new();
        for task in 0..64 {
            let steps = Arc::clone(&steps);
            let (name, ticket) = (
                format!("bare-{task}"),
                format!("3f2b8c1e-7d9a-4b6e-9c55-0a1b2c3d4e5f:{task}"),
            );
            tasks.spawn(async move {
                let (mut done, end) = (0_u64, Instant::now() + SPAN / 8);
                while Instant::now() < end {
                    steps.cycle(&name, &ticket).await;
                    done += 1;
                }
                done
            });
        }
        let bare: u64 = tasks.join_all().await.into_iter().sum();
        rounds.push((ours, bare));
    }
    // The middle one: others use this machine too.
    rounds.sort_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)));
    let (ours, bare) = rounds[rounds.len() / 2];
    println!(
        "64 tasks, 64 locks: {}/s, bare scripts on one connection {}/s, ratio {:.2}",
        ours * 8 / SPAN.as_secs(),
        bare * 8 / SPAN.as_secs(),
        ours as f64 / bare as f64
    );
}

async fn evals(server: &RedisServer) -> u64 {
    let stats = server
        .ask(&["INFO", "commandstats"])
        .await
        .unwrap()
        .join("\n");
    let calls = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

fn report(what: &str, counts: &[u64], span: Duration) -> f64 {
    let sum: u64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|&n| (n as f64).powi(2)).sum();
    let jain = (sum as f64).powi(2) / (squares * counts.len() as f64);
    let rate = sum as f64 / span.as_secs_f64();
    println!(
        "  {what}: {} contenders, {rate:.0} hand-offs/s, Jain {jain:.3}",
        counts.len()
    );
    rate
}

async fn contend(clients: Vec<LockClient>, server: &RedisServer) -> f64 {
    let before = evals(server).await;
    let (start, end) = (Instant::now(), Instant::now() + SPAN);
    let mut tasks = JoinSet::new();
    for client in clients {
        let lock = client.lock("contended").unwrap();
        tasks.spawn(async move {
            let mut done = 0_u64;
            while Instant::now() < end {
                lock.acquire().await.unwrap().release().await.unwrap();
                done += 1;
            }
            done
        });
    }
    let counts = tasks.join_all().await;
    let took = start.elapsed();
    let asked = evals(server).await - before;
    let sum: u64 = counts.iter().sum();
    let rate = report("lockkit", &counts, took);
    println!("  EVALSHA per hand-off: {:.2}", asked as f64 / sum as f64);
    rate
}

async fn bare_list(at: SocketAddr, contenders: usize) -> f64 {
    println!("{contenders} contenders, loopback:");
    let (start, end) = (Instant::now(), Instant::now() + SPAN);
    let mut tasks = JoinSet::new();
    for me in 0..contenders {
        let (mut connection, mut pushes) = bare(at).await;
        let me = format!("channel-{me}");
        connection.subscribe(&me).await.unwrap();
        tasks.spawn(async move {
            let (take, pass) = (Script::new(BARE_TAKE), Script::new(BARE_PASS));
            let mut done = 0_u64;
            while Instant::now() < end {
                let mut call = take.key("list-lock");
                let got: i32 = call
                    .key("list-queue")
                    .arg(&me)
                    .invoke_async(&mut connection)
                    .await
                    .unwrap();
                if got == 0 {
                    pushes.recv().await.unwrap();
                }
                let mut call = pass.key("list-lock");
                let _: i32 = call
                    .key("list-queue")
                    .invoke_async(&mut connection)
                    .await
                    .unwrap();
                done += 1;
            }
            done
        });
    }
    let counts = tasks.join_all().await;
    report("bare list", &counts, start.elapsed())
}

async fn through_a_proxy(direct: SocketAddr, server: &RedisServer) {
    let proxy = Proxy::start(direct).await.unwrap();
    let delay = Duration::from_millis(5);
    let clients = clients(proxy.addr(), 8).await;
    proxy.delay_both(delay);
    let (mut plain, _) = bare(proxy.addr()).await;
    let start = Instant::now();
    for _ in 0..100 {
        redis::cmd("PING").exec_async(&mut plain).await.unwrap();
    }
    let trip = start.elapsed() / 100;
    let lock = clients[0].lock("far").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let start = Instant::now();
    for _ in 0..100 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let cycle = start.elapsed() / 100;
    println!(
        "through 5 ms each way: {cycle:?} a cycle, {:.3} times a PING of {trip:?}",
        cycle.as_secs_f64() / trip.as_secs_f64()
    );
    contend(clients, server).await;
}

async fn many_holds(at: SocketAddr, server: &RedisServer) {
    let client = client(at).await;
    let mut guards = Vec::new();
    for n in 0..20_000 {
        let lock = client.lock(format!("hold-{n}")).unwrap();
        let lock = lock
            .with_lease(Lease::renewed(Duration::from_secs(30)))
            .unwrap();
        guards.push(lock.acquire().await.unwrap());
    }
    server.ask(&["SLOWLOG", "RESET"]).await.unwrap();
    let before = cpu();
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let share = (cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    let held = guards.iter().filter(|guard| guard.check().is_ok()).count();
    let slow = server.ask(&["SLOWLOG", "LEN"]).await.unwrap();
    println!(
        "20 000 holds: {held} stand, {:.2} % of a core, steps of the server over 10 ms: {}",
        share * 100.0,
        slow[0]
    );
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap(),
        time.tv_nsec.try_into().unwrap(),
    )
}
