#![allow(warnings)]
use etcd_client::*;
use lockkit_core::LockClient;
use lockkit_etcd::EtcdStore;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn med(mut v: Vec<f64>) -> f64 {
    v.sort_by(|a, b| a.partial_cmp(b).unwrap());
    v[v.len() / 2]
}
fn first(dir: &str) -> TxnOp {
    TxnOp::get(
        dir,
        Some(
            GetOptions::new()
                .with_prefix()
                .with_sort(SortTarget::Create, SortOrder::Ascend)
                .with_limit(1)
                .with_keys_only(),
        ),
    )
}
fn all(dir: &str) -> TxnOp {
    TxnOp::get(
        dir,
        Some(
            GetOptions::new()
                .with_prefix()
                .with_limit(200)
                .with_keys_only(),
        ),
    )
}
fn count(dir: &str) -> TxnOp {
    TxnOp::get(dir, Some(GetOptions::new().with_prefix().with_count_only()))
}

async fn slow(port: u16) -> u16 {
    let l = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let p = l.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (a, _) = l.accept().await.unwrap();
            let b = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            a.set_nodelay(true);
            b.set_nodelay(true);
            let (ar, aw) = a.into_split();
            let (br, bw) = b.into_split();
            for (mut r, mut w) in [(ar, bw), (br, aw)] {
                let (tx, mut rx) =
                    tokio::sync::mpsc::unbounded_channel::<(tokio::time::Instant, Vec<u8>)>();
                tokio::spawn(async move {
                    let mut buf = vec![0; 65536];
                    loop {
                        let n = r.read(&mut buf).await.unwrap_or(0);
                        if n == 0 {
                            break;
                        }
                        if tx
                            .send((
                                tokio::time::Instant::now() + Duration::from_millis(5),
                                buf[..n].to_vec(),
                            ))
                            .is_err()
                        {
                            break;
                        }
                    }
                });
                tokio::spawn(async move {
                    while let Some((at, d)) = rx.recv().await {
                        tokio::time::sleep_until(at).await;
                        if w.write_all(&d).await.is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    p
}

async fn crowd(port: u16, n: usize, span: Duration, slowly: bool) -> f64 {
    let mut locks = vec![];
    for _ in 0..n {
        let p = if slowly { slow(port).await } else { port };
        let store = EtcdStore::builder()
            .endpoint("127.0.0.1", p)
            .connect()
            .await
            .unwrap();
        locks.push(LockClient::new(store).unwrap().lock("crowd").unwrap());
    }
    for l in &locks {
        l.acquire().await.unwrap().release().await.unwrap();
    }
    let end = Instant::now() + span;
    let mut tasks = vec![];
    for l in locks {
        tasks.push(tokio::spawn(async move {
            let mut c = 0u32;
            while Instant::now() < end {
                l.acquire().await.unwrap().release().await.unwrap();
                c += 1;
            }
            c
        }));
    }
    let mut sum = 0;
    for t in tasks {
        sum += t.await.unwrap();
    }
    sum as f64 / span.as_secs_f64()
}

#[tokio::main]
async fn main() {
    let port: u16 = std::env::args().nth(1).unwrap().parse().unwrap();
    let what = std::env::args().nth(2).unwrap_or_default();
    if what.contains('s') || what.is_empty() {
        solo(port).await;
    }
    for (c, n, slowly) in [('p', 8, true), ('8', 8, false), ('6', 64, false)] {
        if what.contains(c) || what.is_empty() {
            println!(
                "{n} slow={slowly}: {:.1}/s",
                crowd(port, n, Duration::from_secs(4), slowly).await
            );
        }
    }
}

async fn solo(port: u16) {
    let store = EtcdStore::builder()
        .endpoint("127.0.0.1", port)
        .connect()
        .await
        .unwrap();
    let lock = LockClient::new(store).unwrap().lock("solo").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let mut c = Client::connect([format!("127.0.0.1:{port}")], None)
        .await
        .unwrap();
    let lease = c.lease_grant(60, None).await.unwrap().id();
    let mut res: Vec<Vec<f64>> = vec![vec![]; 8];
    let (dir, key) = ("lockkit/bare/", "lockkit/bare/abcdef-1");
    const N: u32 = 100;
    for _ in 0..15 {
        let put = || TxnOp::put(key, "holder", Some(PutOptions::new().with_lease(lease)));
        let t = Instant::now();
        for _ in 0..N {
            c.put("bare", "holder", Some(PutOptions::new().with_lease(lease)))
                .await
                .unwrap();
            c.delete("bare", None).await.unwrap();
        }
        res[0].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
        let t = Instant::now();
        for _ in 0..N {
            let q = Txn::new()
                .when([Compare::create_revision(key, CompareOp::Equal, 0)])
                .and_then([put(), first(dir)])
                .or_else([TxnOp::get(key, None), first(dir)]);
            c.txn(q).await.unwrap();
            let l = Txn::new()
                .when([Compare::create_revision(key, CompareOp::Greater, 0)])
                .and_then([first(dir), TxnOp::delete(key, None)]);
            c.txn(l).await.unwrap();
        }
        res[1].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
        for (i, op) in [(2, all(dir)), (3, count(dir))] {
            let t = Instant::now();
            for _ in 0..N {
                let q = Txn::new()
                    .when([Compare::create_revision(key, CompareOp::Equal, 0)])
                    .and_then([put(), op.clone()])
                    .or_else([TxnOp::get(key, None), first(dir)]);
                c.txn(q).await.unwrap();
                c.delete(key, Some(DeleteOptions::new().with_prev_key()))
                    .await
                    .unwrap();
            }
            res[i].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
        }
        let t = Instant::now();
        for _ in 0..N {
            let q = Txn::new()
                .when([Compare::create_revision(dir, CompareOp::Equal, 0).with_prefix()])
                .and_then([put()])
                .or_else([TxnOp::get(key, None), first(dir)]);
            c.txn(q).await.unwrap();
            c.delete(key, None).await.unwrap();
        }
        res[4].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
        let t = Instant::now();
        for _ in 0..N {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        res[5].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
        let t = Instant::now();
        for _ in 0..N {
            let l = c
                .lock("theirs", Some(LockOptions::new().with_lease(lease)))
                .await
                .unwrap();
            c.unlock(l.key()).await.unwrap();
        }
        res[6].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
    }
    let opts = ConnectOptions::new()
        .with_connect_timeout(Duration::from_secs(1))
        .with_keep_alive(Duration::from_secs(6), Duration::from_secs(2))
        .with_require_leader(true);
    let mut c2 = Client::connect([format!("127.0.0.1:{port}")], Some(opts))
        .await
        .unwrap();
    let store = EtcdStore::builder()
        .endpoint("127.0.0.1", port)
        .connect()
        .await
        .unwrap();
    use lockkit_core::backend::*;
    use lockkit_core::*;
    let me = ClientId::random();
    let mut n = 0;
    let mut more: Vec<Vec<f64>> = vec![vec![]; 6];
    for _ in 0..15 {
        for (i, cc) in [(0, &mut c), (1, &mut c2)] {
            let put = || TxnOp::put(key, "holder", Some(PutOptions::new().with_lease(lease)));
            let t = Instant::now();
            for _ in 0..N {
                let q = Txn::new()
                    .when([Compare::create_revision(key, CompareOp::Equal, 0)])
                    .and_then([put(), all(dir)])
                    .or_else([TxnOp::get(key, None), first(dir)]);
                cc.kv_client().txn(q).await.unwrap();
                cc.kv_client()
                    .delete(key, Some(DeleteOptions::new().with_prev_key()))
                    .await
                    .unwrap();
            }
            more[i].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
        }
        let t = Instant::now();
        for _ in 0..N {
            n += 1;
            let ticket = Ticket::new(
                LockName::new("direct").unwrap(),
                HolderId::new(me, n),
                Duration::from_secs(30),
            );
            let a = store.attempt(&ticket).await.unwrap();
            assert!(matches!(a, Attempt::Granted(_)));
            store.release(&ticket).await.unwrap();
        }
        more[2].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
        let t = Instant::now();
        for _ in 0..N {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        more[3].push(t.elapsed().as_secs_f64() * 1e6 / N as f64);
    }
    for (n, r) in ["ops", "ops, options", "store direct", "lockkit"]
        .iter()
        .zip(more)
    {
        println!("{n:34} {:.0} us", med(r));
    }
    for (n, r) in [
        "put+del",
        "two txns before",
        "own=0 txn put+list, delete prev",
        "own=0 txn put+count, delete prev",
        "empty txn put, delete",
        "lockkit",
        "LockClient",
    ]
    .iter()
    .zip(res)
    {
        println!("{n:34} {:.0} us", med(r));
    }
}
