//! The command of etcd's operators. It holds for as long as it runs.

use std::process::Stdio;
use std::time::Duration;

use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, ensure};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::world::{SOON, client, waiting};

/// `etcdctl lock NAME`: it writes its key when it holds.
struct Ctl {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Ctl {
    fn lock(cluster: &EtcdCluster, name: &str, ttl: u32) -> Outcome<Self> {
        let mut child = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &cluster.endpoints()])
            .args(["lock", "--ttl", &ttl.to_string(), name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| Failure::new("etcdctl has no output"))?;
        let lines = BufReader::new(output).lines();
        Ok(Self { child, lines })
    }

    /// The key with which it holds.
    async fn key(&mut self) -> Outcome<String> {
        let line = within(SOON, self.lines.next_line()).await??;
        line.ok_or_else(|| Failure::new("etcdctl ended"))
    }

    /// Asks it to end, upon which it releases.
    async fn interrupt(&mut self) -> Outcome {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("etcdctl has ended"))?;
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        within(SOON, self.child.wait()).await??;
        Ok(())
    }
}

pub(crate) async fn their_hold_excludes_us_until_its_end() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let lock = client(&cluster).await?.lock("nightly/jobs")?;
    let mut theirs = Ctl::lock(&cluster, "nightly/jobs", 30)?;
    let key = theirs.key().await?;
    ensure(key.starts_with("nightly/jobs/"), key)?;
    ensure(lock.try_acquire().await?.is_none(), "both hold")?;
    let mut waiter = acquire(&lock);
    waiter.waits_for(Duration::from_millis(500)).await?;
    theirs.interrupt().await?;
    let guard = within(Duration::from_secs(2), waiter.soon()).await???;
    guard.check()?;
    guard.release().await?;
    Ok(())
}

pub(crate) async fn our_hold_excludes_them_until_its_end() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let lock = client(&cluster).await?.lock("jobs")?;
    let guard = lock.acquire().await?;
    let mut theirs = Ctl::lock(&cluster, "jobs", 30)?;
    waiting(&lock, 1).await?;
    let early = tokio::time::timeout(Duration::from_millis(500), theirs.key()).await;
    ensure(early.is_err(), "both hold")?;
    guard.check()?;
    guard.release().await?;
    theirs.key().await?;
    ensure(lock.try_acquire().await?.is_none(), "both hold")?;
    theirs.interrupt().await?;
    within(SOON, lock.acquire()).await??.release().await?;
    Ok(())
}

pub(crate) async fn their_death_frees_lock() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let lock = client(&cluster).await?.lock("jobs")?;
    let mut theirs = Ctl::lock(&cluster, "jobs", 2)?;
    theirs.key().await?;
    let waiter = acquire(&lock);
    theirs.child.kill().await?;
    within(SOON, waiter.soon()).await???.release().await?;
    Ok(())
}

pub(crate) async fn operator_sees_and_breaks_their_hold() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let client = client(&cluster).await?;
    let lock = client.lock("jobs")?;
    let mut theirs = Ctl::lock(&cluster, "jobs", 30)?;
    let key = theirs.key().await?;
    let state = lock.inspect().await?;
    let state = state.ok_or_else(|| Failure::new("it looks free to an operator"))?;
    let named = state
        .holder_ids()
        .next()
        .is_some_and(|it| key.ends_with(it));
    ensure(named, format!("{:?} is not {key}", state.holders))?;
    let listed = client.list("jo").await?;
    ensure(listed.len() == 1, format!("{listed:?}"))?;
    lock.break_lock().await?;
    let guard = lock.try_acquire().await?;
    let guard = guard.ok_or_else(|| Failure::new("broken, but not for us"))?;
    ensure(Some(guard.token()) > state.token, "the token did not grow")?;
    Ok(())
}
