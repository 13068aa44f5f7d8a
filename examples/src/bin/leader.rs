//! Three processes, of which one leads. The leader is killed, and the next one leads in a later term.
//!
//! Run it: `cargo run -p lockkit-examples --bin leader`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use lockkit_examples::Outcome;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

#[tokio::main]
async fn main() -> Outcome {
    let mut arguments = env::args().skip(1);
    if let (Some(url), Some(address)) = (arguments.next(), arguments.next()) {
        return candidate(&url, &address).await;
    }

    // Files exclude the processes of one machine; a fleet needs another URL and nothing else.
    let directory = tempfile::tempdir()?;
    let url = format!("file:{}", directory.path().display());
    let mut candidates = BTreeMap::new();
    for address in ["10.0.0.1:7001", "10.0.0.2:7001", "10.0.0.3:7001"] {
        candidates.insert(address.to_owned(), start(&url, address)?);
    }

    let election = lockkit::connect(&url).await?.election("shard-7")?;
    let mut leaders = election.observe();
    let mut terms = Vec::new();
    while !candidates.is_empty() {
        let leader = timeout(Duration::from_secs(30), leaders.changed()).await??;
        let Some(leader) = leader else { continue };
        // Without a value it has just been elected, and will say who it is.
        let Some(address) = leader.value else {
            continue;
        };
        let term = leader.term.ok_or("a leader without a term")?;
        println!("{address} leads in term {term}");
        terms.push(term);
        if let Some(mut leader) = candidates.remove(&address) {
            println!("{address} is killed");
            leader.kill().await?;
        }
    }
    assert_eq!(terms.len(), 3);
    assert!(terms.is_sorted());
    Ok(())
}

fn start(url: &str, address: &str) -> std::io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args([url, address]).kill_on_drop(true).spawn()
}

/// One of the three processes.
async fn candidate(url: &str, address: &str) -> Outcome {
    let client = lockkit::connect(url).await?;
    let term = client.election("shard-7")?.campaign(address).await?;
    // A leader works for as long as it leads, and sends its token with every write.
    let reason = term.protect(sleep(Duration::from_secs(60))).await;
    reason?;
    Ok(term.release().await?)
}
