//! A task that runs in one of several processes, and in another one when that process ends.
//!
//! Run it: `cargo run -p lockkit-examples --bin singleton`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::sync::Arc;
use std::time::Duration;

use lockkit::layers::{Faults, Faulty};
use lockkit::memory::MemoryStore;
use lockkit::{Error, Lock, LockClient};
use lockkit_examples::Outcome;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Who reports, and the token of the step that it has done, or none if the store fails.
type Report = (&'static str, Option<u64>);

/// The holder does the work until the hold is lost or the work is done, and then joins the queue again. Only
/// the shutdown of the client ends the loop: when the store fails for longer than `outage`, `acquire`
/// returns an error, and the task must continue after it.
async fn serve(name: &'static str, lock: Lock, done: mpsc::Sender<Report>) -> Outcome {
    loop {
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            Err(Error::Shutdown) => return Ok(()),
            Err(error) => {
                println!("{name} waits: {error}");
                done.send((name, None)).await?;
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let token = guard.token().get();
        // Dropped at the moment the hold is lost, between two awaits of the work.
        let work = guard.protect(work(name, token, &done)).await;
        match work {
            Ok(ended) => ended?,
            Err(lost) => println!("{name} stops: {lost}"),
        }
        guard.release().await.ok();
    }
}

/// Three steps, then a pause for the others.
async fn work(name: &'static str, token: u64, done: &mpsc::Sender<Report>) -> Outcome {
    for _ in 0..3 {
        done.send((name, Some(token))).await?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    // Two clients that share nothing but the store, as two processes do.
    let store = MemoryStore::new();
    let (tell, mut steps) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    let mut faults = Vec::new();
    for name in ["first", "second"] {
        let store = Faulty::new(Arc::new(store.connect()), 1);
        faults.push(store.faults());
        let client = LockClient::builder(store);
        let client = client.outage(Duration::from_millis(100)).build()?;
        let lock = client.lock("mailer")?;
        tasks.spawn(serve(name, lock, tell.clone()));
    }
    let mut seen = Vec::new();
    while seen.len() < 12 {
        let (name, token) = steps.recv().await.ok_or("no process works")?;
        seen.push((name, token.ok_or("the store fails")?));
    }
    for turn in seen.chunk_by(|a, b| a.1 == b.1) {
        println!(
            "{} did {} steps under token {}",
            turn[0].0,
            turn.len(),
            turn[0].1
        );
        assert!(turn.iter().all(|step| step.0 == turn[0].0), "one at a time");
    }
    assert!(seen.is_sorted_by_key(|step| step.1), "tokens only grow");
    assert!(
        seen.iter().any(|step| step.0 != seen[0].0),
        "both had a turn"
    );
    let returned = returns_after_an_outage(&faults, &mut steps);
    timeout(Duration::from_secs(30), returned).await?
}

/// The store fails for longer than `outage`. A task whose `acquire` has failed works again afterwards.
async fn returns_after_an_outage(faults: &[Faults], steps: &mut mpsc::Receiver<Report>) -> Outcome {
    faults.iter().for_each(Faults::outage);
    let mut failed = None;
    while failed.is_none() {
        let (name, token) = steps.recv().await.ok_or("no process works")?;
        failed = token.is_none().then_some(name);
    }
    faults.iter().for_each(Faults::heal);
    loop {
        let (name, token) = steps.recv().await.ok_or("no process works")?;
        if let Some(token) = token.filter(|_| Some(name) == failed) {
            println!("{name} works again under token {token}");
            return Ok(());
        }
    }
}
