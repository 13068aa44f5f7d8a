//! Sessions that are killed, by an administrator, by the death of their process or for being idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::taker::Taker;
use conformance_tests::task::{acquire, soon, spawn, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Lease, LockClient, PollRange};
use lockkit_sql::{MysqlStore, PostgresStore};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::section::Section;
use crate::world::{
    Database, LONG, Maria, Postgres, SOON, Setting, TTL, WAYS, client, locks, only_rows_left, taker,
};

pub(crate) async fn killed_sessions_lose_neither_leases_nor_waiters<D: Database>() -> Outcome {
    let server = D::start().await?;
    let of = locks(&server, "lease", LONG, 4).await?;
    let guard = client(&server, "lease", LONG)
        .await?
        .lock("kept")?
        .acquire()
        .await?;
    let (section, turns) = (Section::default(), Arc::new(AtomicU32::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let work = of.into_iter().map(|lock| {
        let (section, turns, stop) = (section.clone(), Arc::clone(&turns), Arc::clone(&stop));
        spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                section.clone().take_turns(lock.clone(), 1).await?;
                turns.fetch_add(1, Ordering::SeqCst);
            }
            Outcome::Ok(())
        })
    });
    let work: Vec<_> = work.collect();
    for _ in 0..10 {
        let before = turns.load(Ordering::SeqCst);
        server.kill_sessions().await?;
        // More than those that were being taken.
        until("turns are taken", async || {
            Ok(turns.load(Ordering::SeqCst) > before + 4)
        })
        .await?;
        guard.check()?;
    }
    stop.store(true, Ordering::SeqCst);
    for worker in work {
        worker.soon().await??;
    }
    guard.release().await?;
    only_rows_left(&server).await
}

pub(crate) async fn killed_pin_is_a_loss_at_once<D: Database>() -> Outcome {
    let server = D::start().await?;
    for waiting in WAYS {
        // Both have the name of the first.
        let holder = client(&server, "pin", LONG).await?.lock("jobs")?;
        let other = client(&server, waiting, LONG).await?.lock("jobs")?;
        let guard = holder.acquire().await?;
        let mut waiter = acquire(&other);
        waiter.waits_for(Duration::from_millis(300)).await?;
        let killed = Instant::now();
        let loss = loss_of(guard);
        server.kill_pins().await?;
        let (_, lost, guard) = within(SOON, loss.soon()).await??;
        let took = lost - killed;
        ensure(
            took < Duration::from_secs(2),
            format!("reported after {took:?}"),
        )?;
        ensure(guard.check().is_err(), "a lost guard passes its check")?;
        let next = within(SOON, waiter.soon()).await???;
        ensure(next.token() > guard.token(), "the token has not grown")?;
        drop(guard);
        sleep(Duration::from_millis(100)).await;
        next.check()?;
        next.release().await?;
    }
    only_rows_left(&server).await
}

/// A holder that checks all the time, and a waiter: no check passes once the waiter has the lock.
pub(crate) async fn no_check_passes_after_a_takeover_from_a_killed_session<D: Database>() -> Outcome
{
    let server = D::start().await?;
    for round in 0..4 {
        let guard = client(&server, "pin", LONG).await?.lock("jobs")?;
        let guard = guard.acquire().await?;
        let waiting = WAYS[round % WAYS.len()];
        let waiter = acquire(&client(&server, waiting, LONG).await?.lock("jobs")?);
        let checks = spawn(async move {
            let mut passed = Instant::now();
            loop {
                let now = Instant::now();
                if guard.check().is_err() {
                    return (passed, guard);
                }
                passed = now;
                sleep(Duration::from_millis(1)).await;
            }
        });
        sleep(Duration::from_millis(300)).await;
        server.kill_pins().await?;
        let next = within(SOON, waiter.soon()).await???;
        let granted = Instant::now();
        let (passed, guard) = within(SOON, checks.soon()).await??;
        ensure(passed < granted, "a check passes after another grant")?;
        ensure(next.token() > guard.token(), "the token has not grown")?;
        next.check()?;
        next.release().await?;
    }
    only_rows_left(&server).await
}

pub(crate) async fn lock_of_a_killed_process_is_free_at_once<D: Database>() -> Outcome {
    let server = D::start().await?;
    let url = server.url("pin=true");
    let other = client(&server, "lease", LONG).await?.lock("jobs")?;
    drop(other.try_acquire().await?);
    for _ in 0..3 {
        let mut taker = Taker::start(&taker(), &url, LONG).await?;
        let token = taker.acquire("jobs").await?;
        let mut waiter = acquire(&other);
        waiter.waits_for(Duration::from_millis(200)).await?;
        taker.kill().await?;
        let killed = Instant::now();
        let next = within(SOON, waiter.soon()).await???;
        let took = killed.elapsed();
        ensure(
            took < Duration::from_secs(2),
            format!("free after {took:?}"),
        )?;
        ensure(next.token().get() > token, "the token has not grown")?;
        next.release().await?;
    }
    only_rows_left(&server).await
}

/// Readers that wait find out with their looks.
pub(crate) async fn readers_follow_a_killed_process_at_once<D: Database>() -> Outcome {
    let server = D::start().await?;
    let (program, url) = (taker(), server.url("pin=true"));
    let client = client(&server, "lease", LONG).await?;
    for shared in [
        client.rw_lock("jobs")?.read(),
        client.semaphore("seats", 2)?,
    ] {
        let mut taker = Taker::start(&program, &url, LONG).await?;
        taker.acquire(shared.name().as_str()).await?;
        let mut waiter = acquire(&shared);
        waiter.waits_for(Duration::from_millis(200)).await?;
        taker.kill().await?;
        // A waiter looks every three seconds.
        let limit = Duration::from_secs(5);
        within(limit, waiter.soon()).await???.release().await?;
        // So does one that only tries.
        let mut taker = Taker::start(&program, &url, LONG).await?;
        taker.acquire(shared.name().as_str()).await?;
        taker.kill().await?;
        let tried = async {
            loop {
                if let Some(guard) = shared.try_acquire().await? {
                    return guard.release().await;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        within(limit, tried).await??;
    }
    only_rows_left(&server).await
}

/// A server that ends whatever is idle, long before a lease ends.
pub(crate) async fn idle_killers_cost_no_hold<D: Database>() -> Outcome {
    let server = D::start().await?;
    server.set(&D::KILLS_THE_IDLE).await?;
    let idle = server.pool(1).await?.acquire().await?;
    until("an idle session has ended", async || {
        Ok(server.sessions().await? == 0)
    })
    .await?;
    drop(idle);
    for way in WAYS {
        let of = locks(&server, way, Duration::from_secs(6), 2).await?;
        let guard = of[0].acquire().await?;
        let mut waiter = acquire(&of[1]);
        waiter.waits_for(Duration::from_secs(3)).await?;
        guard.check()?;
        guard.release().await?;
        within(SOON, waiter.soon()).await???.release().await?;
        sleep(Duration::from_millis(1500)).await;
        of[0].acquire().await?.release().await?;
    }
    only_rows_left(&server).await
}

/// After contention, cancelled waits, killed sessions and a loss, all clients go.
pub(crate) async fn only_rows_are_left<D: Database>() -> Outcome {
    let server = D::start().await?;
    let tasks = Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    for way in WAYS {
        let mut clients = Vec::new();
        let mut of = Vec::new();
        for _ in 0..4 {
            let client = client(&server, way, TTL).await?;
            of.push(client.lock(format!("jobs/{way}"))?);
            clients.push(client);
        }
        Section::default().share(&of, 5).await?;
        let guard = of[0].acquire().await?;
        let waited = of[1].acquire_timeout(Duration::from_millis(50)).await;
        ensure(waited.is_err(), "both hold the lock")?;
        acquire(&of[2]).cancel().await;
        server.kill_sessions().await?;
        // The first word may meet a session that was killed.
        let broken = until("the lock is broken", async || {
            Ok(of[3].break_lock().await.is_ok())
        });
        broken.await?;
        soon(guard.lost()).await?;
        drop(guard);
        for client in &clients {
            client.drain().await;
        }
    }
    only_rows_left(&server).await?;
    until("all sessions are closed", async || {
        Ok(server.sessions().await? == 0)
    })
    .await?;
    until("all tasks have ended", async || {
        Ok(tasks.num_alive_tasks() <= before)
    })
    .await
}

/// The network drops the connection that listens, and neither side notices.
pub(crate) async fn wake_ups_come_back_after_a_silent_cut() -> Outcome {
    let server = Postgres::start().await?;
    let way = Proxy::start(([127, 0, 0, 1], server.options().get_port()).into()).await?;
    let open = async |port| -> Outcome<_> {
        let builder = PostgresStore::builder(server.options().port(port));
        let store = builder.poll(PollRange::new(LONG, LONG)).connect().await?;
        let client = LockClient::builder(store).lease(Lease::renewed(LONG * 6));
        Ok(client.build()?.lock("jobs")?)
    };
    let mine = open(server.options().get_port()).await?;
    let other = open(way.addr().port()).await?;
    let guard = mine.acquire().await?;
    let mut waiter = Box::pin(other.acquire());
    let early = within(Duration::from_secs(1), &mut waiter).await;
    way.flow(Direction::Reply, Flow::Discard);
    guard.release().await?;
    let told = within(Duration::from_millis(300), &mut waiter).await;
    ensure(early.is_err() && told.is_err(), "nothing was cut off")?;
    way.heal();
    let guard = within(Duration::from_secs(30), waiter).await??;
    guard.release().await?;
    only_rows_left(&server).await
}

/// The network drops the connections of a client, and neither side notices.
pub(crate) async fn cut_off_pin_is_lost_before_another_is_granted() -> Outcome {
    let server = Postgres::start().await?;
    let way = Proxy::start(([127, 0, 0, 1], server.options().get_port()).into()).await?;
    let store = PostgresStore::builder(server.options().port(way.addr().port())).pin(true);
    let mine = LockClient::builder(store.connect().await?).lease(Lease::renewed(TTL));
    let guard = mine.build()?.lock("jobs")?.acquire().await?;
    let other = client(&server, "pin", LONG).await?.lock("jobs")?;
    let loss = loss_of(guard);
    let next = spawn(async move { (other.acquire().await, Instant::now()) });
    for direction in [Direction::Request, Direction::Reply] {
        way.flow(direction, Flow::Discard);
    }
    let (_, lost, guard) = within(TTL * 2, loss.soon()).await??;
    let (next, granted) = within(SOON, next.soon()).await??;
    ensure(lost <= granted, "lost after another was granted")?;
    let next = next?;
    ensure(next.token() > guard.token(), "the token has not grown")?;
    next.release().await?;
    way.heal();
    drop(guard);
    only_rows_left(&server).await
}

/// A server that begins a transaction with each statement and leaves it open: no row stays locked.
pub(crate) async fn server_without_autocommit_keeps_no_row_locked() -> Outcome {
    let server = Maria::start().await?;
    let setting = Setting {
        statements: "set global init_connect = 'set autocommit = 0'",
        shown: &[("select concat(@@autocommit)", "OFF")],
    };
    server.set(&setting).await?;
    for way in WAYS {
        let of = locks(&server, way, LONG, 4).await?;
        Section::default().share(&of, 5).await?;
    }
    let mine = client(&server, "lease", TTL).await?;
    let mut guards = Vec::new();
    // Enough to be renewed by one statement.
    for number in 0..8 {
        guards.push(mine.lock(format!("kept/{number}"))?.acquire().await?);
    }
    sleep(TTL * 2).await;
    for guard in guards {
        guard.check()?;
        guard.release().await?;
    }
    only_rows_left(&server).await
}

/// A proxy that answers the protocol's pings by itself, as `ProxySQL` does: the server hears nothing of
/// them, and ends a session that is silent for longer than a lease.
pub(crate) async fn pin_lasts_behind_a_proxy_that_answers_pings() -> Outcome {
    let server = Maria::start().await?;
    let port = pings::answer(server.options().get_port()).await?;
    let store = MysqlStore::builder(server.options().port(port)).pin(true);
    let mine = LockClient::builder(store.connect().await?).lease(Lease::renewed(TTL));
    let guard = mine.build()?.lock("jobs")?.acquire().await?;
    let other = client(&server, "lease", TTL).await?.lock("jobs")?;
    for _ in 0..6 {
        sleep(TTL / 2).await;
        ensure(other.try_acquire().await?.is_none(), "two hold at once")?;
        guard.check()?;
    }
    guard.release().await?;
    only_rows_left(&server).await
}

/// A proxy of MySQL's protocol.
mod pings {
    use std::io;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::Handle;

    const PING: u8 = 14;
    const OK: [u8; 11] = [7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];

    /// Forwards everything but pings, which it answers. Returns its port.
    pub(super) async fn answer(server: u16) -> io::Result<u16> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        Handle::current().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let behind = TcpStream::connect(("127.0.0.1", server)).await;
                if let Ok(behind) = behind {
                    Handle::current().spawn(pass(client, behind));
                }
            }
        });
        Ok(port)
    }

    async fn pass(client: TcpStream, server: TcpStream) -> io::Result<()> {
        let (mut requests, mut replies) = client.into_split();
        let (mut answers, mut behind) = server.into_split();
        let (sender, mut pongs) = tokio::sync::mpsc::channel::<()>(8);
        let back = async move {
            let mut buffer = vec![0; 1 << 16];
            loop {
                tokio::select! {
                    read = answers.read(&mut buffer) => match read? {
                        0 => return io::Result::Ok(()),
                        n => replies.write_all(&buffer[..n]).await?,
                    },
                    Some(()) = pongs.recv() => replies.write_all(&OK).await?,
                }
            }
        };
        let there = async move {
            loop {
                let mut head = [0; 4];
                requests.read_exact(&mut head).await?;
                let length = u64::from(u32::from_le_bytes([head[0], head[1], head[2], 0]));
                if length == 1 {
                    let command = requests.read_u8().await?;
                    if command == PING {
                        let _ = sender.send(()).await;
                        continue;
                    }
                    behind.write_all(&head).await?;
                    behind.write_u8(command).await?;
                    continue;
                }
                behind.write_all(&head).await?;
                copy(&mut (&mut requests).take(length), &mut behind).await?;
            }
        };
        tokio::select! {
            ended = back => ended,
            ended = there => ended,
        }
    }
}
