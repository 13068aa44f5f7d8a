//! The real Redisson on the same names. It needs `java` with a compiler, `mvn` and `redis-server`;
//! what is missing shows as ignored, with its reason.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use conformance_tests::servers::{RedisServer, guardian};
use conformance_tests::{Failure, Outcome, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_core::LockClient;
use lockkit_redis::RedisStore;
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/redisson");

fn main() -> ExitCode {
    if let Some(code) = guardian::serve() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let missing = missing();
    let cases: [(&str, fn(&Stage) -> Outcome); 4] = [
        ("they_exclude_each_other", they_exclude_each_other),
        ("our_release_wakes_its_waiter", our_release_wakes_its_waiter),
        ("its_release_wakes_our_waiter", its_release_wakes_our_waiter),
        ("tokens_grow_across_both", tokens_grow_across_both),
    ];
    let trials = cases.map(|(name, case)| {
        let trial = Trial::test(format!("redisson::{name}"), move || {
            let stage = Stage::new().map_err(Failed::from)?;
            case(&stage).map_err(Failed::from)
        });
        match &missing {
            Some(reason) => trial
                .with_ignored_flag(true)
                .with_kind(format!("skip: {reason}")),
            None => trial,
        }
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

fn missing() -> Option<String> {
    for program in ["java", "mvn"] {
        let found = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if !found.is_ok_and(|status| status.success()) {
            return Some(format!("`{program}` is not installed"));
        }
    }
    (!RedisServer::is_installed()).then(|| "`redis-server` is not installed".into())
}

/// A server, a client of ours and a Redisson.
struct Stage {
    runtime: Runtime,
    client: LockClient,
    redisson: Redisson,
    _server: RedisServer,
}

impl Stage {
    fn new() -> Outcome<Self> {
        let jars = jars()?;
        let runtime = Runtime::new()?;
        let (server, client) = runtime.block_on(async {
            let none: [&str; 0] = [];
            let server = RedisServer::start(&std::env::current_exe()?, none).await?;
            let store = RedisStore::builder().tcp("127.0.0.1", server.port());
            let client = LockClient::new(store.connect().await?)?;
            Ok::<_, Failure>((server, client))
        })?;
        Ok(Self {
            redisson: Redisson::start(&jars, server.port())?,
            runtime,
            client,
            _server: server,
        })
    }
}

/// Fetches Redisson once.
fn jars() -> Outcome<PathBuf> {
    let jars = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redisson-4.7.0");
    let complete = jars.join("complete");
    if !complete.exists() {
        let fetched = Command::new("mvn")
            .args(["-q", "-B", "dependency:copy-dependencies", "-f", HERE])
            .arg(format!("-DoutputDirectory={}", jars.display()))
            .status()?;
        ensure(fetched.success(), "`mvn` could not fetch Redisson")?;
        std::fs::write(complete, "")?;
    }
    Ok(jars)
}

struct Redisson {
    program: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Redisson {
    fn start(jars: &Path, port: u16) -> Outcome<Self> {
        let mut program = Command::new("java")
            .args(["-XX:TieredStopAtLevel=1", "-cp"])
            .arg(format!("{}/*", jars.display()))
            .arg(format!("{HERE}/Main.java"))
            .arg(format!("redis://127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || Failure::new("the program has no pipes");
        let input = program.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(program.stdout.take().ok_or_else(missing)?);
        let redisson = Self {
            program,
            pipes: Mutex::new((input, output)),
        };
        ensure(redisson.answer()? == "ready", "Redisson does not start")?;
        Ok(redisson)
    }

    fn order(&self, order: &str, name: &str) -> Outcome<String> {
        self.tell(order, name)?;
        self.answer()
    }

    fn tell(&self, order: &str, name: &str) -> Outcome {
        let mut pipes = self.pipes.lock().map_err(|_| Failure::new("poisoned"))?;
        Ok(writeln!(pipes.0, "{order} {name}")?)
    }

    fn answer(&self) -> Outcome<String> {
        let mut pipes = self.pipes.lock().map_err(|_| Failure::new("poisoned"))?;
        let mut line = String::new();
        pipes.1.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Redisson {
    fn drop(&mut self) {
        drop(self.program.kill());
        drop(self.program.wait());
    }
}

fn is(answer: &str, expected: &str) -> Outcome {
    ensure(answer == expected, format!("Redisson says {answer}"))
}

fn they_exclude_each_other(stage: &Stage) -> Outcome {
    let redisson = &stage.redisson;
    for name in ["orders/1", "a{b}c", "with blanks"] {
        let lock = stage.client.lock(name)?;
        is(&redisson.order("lock", name)?, "done")?;
        is(&redisson.order("lock", name)?, "done")?;
        stage.runtime.block_on(async {
            ensure(lock.try_acquire().await?.is_none(), "two hold")?;
            is(&redisson.order("unlock", name)?, "done")?;
            ensure(lock.try_acquire().await?.is_none(), "two hold")?;
            is(&redisson.order("unlock", name)?, "done")?;
            let guard = lock.acquire().await?;
            is(&redisson.order("try", name)?, "held")?;
            is(&redisson.order("unlock", name)?, "not the owner")?;
            guard.check()?;
            guard.release().await?;
            is(&redisson.order("try", name)?, "done")?;
            is(&redisson.order("unlock", name)?, "done")
        })?;
    }
    Ok(())
}

fn our_release_wakes_its_waiter(stage: &Stage) -> Outcome {
    let lock = stage.client.lock("a")?;
    stage.runtime.block_on(async {
        let guard = lock.acquire().await?;
        stage.redisson.tell("wait", "a")?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let start = Instant::now();
        guard.release().await?;
        is(&stage.redisson.answer()?, "done")?;
        let took = start.elapsed();
        ensure(took < Duration::from_secs(2), format!("it took {took:?}"))?;
        is(&stage.redisson.order("unlock", "a")?, "done")
    })
}

fn its_release_wakes_our_waiter(stage: &Stage) -> Outcome {
    is(&stage.redisson.order("lock", "a")?, "done")?;
    let lock = stage.client.lock("a")?;
    stage.runtime.block_on(async {
        let waiter = stage.runtime.spawn(async move { lock.acquire().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let start = Instant::now();
        is(&stage.redisson.order("unlock", "a")?, "done")?;
        let guard = timeout(Duration::from_secs(10), waiter)
            .await
            .map_err(|_| Failure::new("never served"))?;
        let took = start.elapsed();
        ensure(took < Duration::from_secs(1), format!("it took {took:?}"))?;
        let guard = guard.map_err(|error| Failure::new(error.to_string()))?;
        guard?.release().await?;
        Ok(())
    })
}

fn tokens_grow_across_both(stage: &Stage) -> Outcome {
    let lock = stage.client.lock("a")?;
    let mut last = 0;
    for _ in 0..3 {
        let token = stage.runtime.block_on(async {
            let guard = lock.acquire().await?;
            let token = guard.token().get();
            guard.release().await?;
            Ok::<_, Failure>(token)
        })?;
        ensure(token > last, format!("{token} after {last}"))?;
        let theirs = stage.redisson.order("fenced", "a")?;
        last = theirs.parse().map_err(|_| Failure::new(theirs))?;
        ensure(last > token, format!("{last} after {token}"))?;
        is(&stage.redisson.order("unlock", "a")?, "done")?;
    }
    Ok(())
}
