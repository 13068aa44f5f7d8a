//! One of the processes.

use std::io::{self, Read as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conformance_tests::history::Recorder;
use conformance_tests::taker::Worker;
use conformance_tests::{Failure, Outcome};
use lockkit_core::{Guard, Lease, LockClient};
use lockkit_sql::{GuardedError, StillHeld as _};
use sqlx::{MySqlPool, PgPool};
use tokio::time::sleep;

/// The first argument of a process; the URL, whether it pins, and its number follow.
pub(crate) const MARK: &str = "--soak-worker";
pub(crate) const LOCK: &str = "soak";
pub(crate) const TTL: Duration = Duration::from_millis(1500);

/// Acts as one of the processes if the program was started as one.
pub(crate) fn serve() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mark, url, pin, number] = &arguments[..] else {
        return None;
    };
    if mark != MARK {
        return None;
    }
    Some(match run(url, pin, number) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    })
}

fn run(url: &str, pin: &str, number: &str) -> Outcome {
    // A frozen process does not see the end of its input.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        // It only ever ends.
        let _ = io::stdin().read(&mut [0]);
        told.store(true, Ordering::SeqCst);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work(url, pin, number.parse()?, &over))
}

async fn work(url: &str, pin: &str, number: i64, over: &AtomicBool) -> Outcome {
    let client = lockkit::builder(format!("{url}?poll=5ms..50ms&pin={pin}"));
    let client = client.lease(Lease::renewed(TTL)).connect().await?;
    let pool = Pool::connect(url).await?;
    let recorder = Recorder::writing_to(io::stdout());
    let worker = Worker::new(client.lock(LOCK)?, recorder.clone());
    let mut turn = 0;
    while !over.load(Ordering::SeqCst) {
        let hold = recorder.next_hold();
        let Some(guard) = worker.acquire(hold).await else {
            continue;
        };
        worker.check(hold, &guard);
        turn += 1;
        let word = match pool.count(&client, &guard, number, turn).await {
            Ok(()) => "ok",
            Err(Ended::Before) => "failed",
            Err(Ended::Fenced) => "fenced",
            Err(Ended::InCommit) => "unknown",
        };
        println!("turn {turn} {word}");
        worker.check(hold, &guard);
        worker.release(hold, guard).await;
    }
    client.drain().await;
    Ok(())
}

/// How a transaction did not come to its end.
enum Ended {
    Before,
    Fenced,
    InCommit,
}

impl From<sqlx::Error> for Ended {
    fn from(_: sqlx::Error) -> Self {
        Self::Before
    }
}

impl From<GuardedError> for Ended {
    fn from(error: GuardedError) -> Self {
        match error {
            GuardedError::Fenced => Self::Fenced,
            _ => Self::Before,
        }
    }
}

/// The application's own connections.
enum Pool {
    Postgres(PgPool),
    Mysql(MySqlPool),
}

impl Pool {
    async fn connect(url: &str) -> Outcome<Self> {
        match url.split_once(':') {
            Some(("postgres", _)) => Ok(Self::Postgres(PgPool::connect(url).await?)),
            Some(("mysql", _)) => Ok(Self::Mysql(MySqlPool::connect(url).await?)),
            _ => Err(Failure::new("no database has this scheme")),
        }
    }

    /// Counts one up if the hold stands at the commit.
    async fn count(
        &self,
        client: &LockClient,
        guard: &Guard,
        number: i64,
        turn: i64,
    ) -> Result<(), Ended> {
        let token = guard.token().get().cast_signed();
        // Frozen here, it comes late.
        let pause = sleep(Duration::from_millis(fastrand::u64(0..8)));
        match self {
            Self::Postgres(pool) => {
                let mut transaction = pool.begin().await?;
                let insert = "insert into commits (worker, turn, token) values ($1, $2, $3)";
                let insert = sqlx::query(insert).bind(number).bind(turn).bind(token);
                insert.execute(&mut *transaction).await?;
                pause.await;
                client.still_held(guard, &mut transaction).await?;
                let count = sqlx::query("update counter set n = n + 1");
                count.execute(&mut *transaction).await?;
                println!("turn {turn} asked");
                transaction.commit().await.map_err(|_| Ended::InCommit)
            }
            Self::Mysql(pool) => {
                let mut transaction = pool.begin().await?;
                let insert = "insert into commits (worker, turn, token) values (?, ?, ?)";
                let insert = sqlx::query(insert).bind(number).bind(turn).bind(token);
                insert.execute(&mut *transaction).await?;
                pause.await;
                client.still_held(guard, &mut transaction).await?;
                let count = sqlx::query("update counter set n = n + 1");
                count.execute(&mut *transaction).await?;
                println!("turn {turn} asked");
                transaction.commit().await.map_err(|_| Ended::InCommit)
            }
        }
    }
}
