//! Queues whose numbers have grown old: a billion places are too many to be taken in a test, so that
//! the count of a queue's node is written into a snapshot of the server.

use std::fs;
use std::path::PathBuf;

use conformance_tests::servers::{ZkCommand, ZkServer};
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, Server, ensure};
use zookeeper_client::{Acls, CreateMode};

use crate::world::{LONG, Plot, SOON, client};

/// A server on which the next place of the plot's queue has a number.
async fn grown_to(next: i32) -> Outcome<(ZkServer, Plot)> {
    // The server's own digest of the tree would show that it was changed.
    let command = ZkCommand::system().option("-Dzookeeper.digest.enabled=false");
    let server = ZkServer::start(&command).await?;
    let plot = Plot::on(&server).await?;
    let plain = CreateMode::Persistent.with_acls(Acls::anyone_all());
    plot.bare.mkdir(&plot.dir(), &plain).await?;
    let root = plot.root.clone();
    drop(plot);
    // It writes a snapshot when it starts.
    server.restart().await?;
    server.process().kill();
    let file = latest_snapshot(&server)?;
    let mut snapshot = fs::read(&file)?;
    set_count(&mut snapshot, &format!("{root}/jobs"), next)?;
    fs::write(&file, snapshot)?;
    server.restart().await?;
    let plot = Plot {
        root,
        ..Plot::on(&server).await?
    };
    Ok((server, plot))
}

fn latest_snapshot(server: &ZkServer) -> Outcome<PathBuf> {
    let mut latest = None;
    for entry in fs::read_dir(server.process().data().join("version-2"))? {
        let path = entry?.path();
        let number = path.extension().and_then(|text| text.to_str());
        let number = number.and_then(|text| i64::from_str_radix(text, 16).ok());
        let is_snapshot = path.file_stem().is_some_and(|name| name == "snapshot");
        if let Some(number) = number.filter(|_| is_snapshot) {
            latest = latest.max(Some((number, path)));
        }
    }
    let (_, path) = latest.ok_or_else(|| Failure::new("the server wrote no snapshot"))?;
    Ok(path)
}

/// Writes how often the children of a node have changed, which numbers the next one, and the checksum
/// at the end: that of all before it, in eight bytes, and a path of one byte.
fn set_count(snapshot: &mut [u8], path: &str, count: i32) -> Outcome {
    let odd = || Failure::new("the snapshot has another format");
    let length = u32::try_from(path.len())?;
    let key = [&length.to_be_bytes(), path.as_bytes()].concat();
    let mut found = snapshot.windows(key.len());
    let at = found.position(|bytes| bytes == key).ok_or_else(odd)? + key.len();
    let data = snapshot.get(at..at + 4).ok_or_else(odd)?;
    let data = i32::from_be_bytes(data.try_into().map_err(|_| odd())?);
    let data = usize::try_from(data.max(0))?;
    // The data and their length, the access, four numbers of eight bytes, and the version of the data.
    let at = at + 4 + data + 8 + 4 * 8 + 4;
    let place = snapshot.get_mut(at..at + 4).ok_or_else(odd)?;
    place.copy_from_slice(&count.to_be_bytes());
    let end = snapshot.len().checked_sub(8 + 4 + 1).ok_or_else(odd)?;
    ensure(snapshot[end + 8..] == *b"\0\0\0\x01/", odd().to_string())?;
    let sum = u64::from(adler32(&snapshot[..end]));
    snapshot[end..end + 8].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (1, 0);
    for byte in bytes {
        low = (low + u32::from(*byte)) % MODULUS;
        high = (high + low) % MODULUS;
    }
    (high << 16) | low
}

/// A queue that is never empty reaches the last number of 32 bits: who came first is served first.
pub(crate) async fn waiters_are_served_in_order_after_the_last_number() -> Outcome {
    let (_server, plot) = grown_to(i32::MAX - 4).await?;
    let lock = client(plot.builder().session(LONG)).await?.lock("jobs")?;
    let held = lock.acquire().await?;
    let mut waiters = Vec::new();
    for standing in 2..=6 {
        let lock = client(plot.builder().session(LONG)).await?.lock("jobs")?;
        waiters.push(acquire(&lock));
        plot.queued(standing).await?;
    }
    let queue = plot.queue().await?;
    let wrapped = queue
        .iter()
        .any(|node| node.contains("-lock--") || node.ends_with("-lock-2147483647"));
    ensure(wrapped, format!("{queue:?}"))?;
    let mut last = held.token();
    held.release().await?;
    for waiter in waiters {
        let guard = within(SOON, waiter.soon()).await???;
        ensure(guard.token() > last, "served out of order")?;
        last = guard.token();
        guard.release().await?;
    }
    Ok(())
}
