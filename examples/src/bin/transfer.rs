//! Transfers between accounts: both locks are held together, and crossed transfers never wait for each other.
//!
//! Run it: `cargo run -p lockkit-examples --bin transfer`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lockkit::{LockClient, MultiLock};
use lockkit_examples::Outcome;
use tokio::task::{JoinSet, yield_now};

type Accounts = Arc<[AtomicI64; 3]>;

async fn transfer(
    client: &LockClient,
    accounts: &Accounts,
    (from, to): (usize, usize),
    amount: i64,
) -> lockkit::Result<()> {
    let locks = MultiLock::new([
        client.lock(format!("account/{from}"))?,
        client.lock(format!("account/{to}"))?,
    ])?;
    let moved = locks.scope(async |_guard| {
        // A read and a later write, which a transfer in between would break.
        let (left, right) = (
            accounts[from].load(Ordering::SeqCst),
            accounts[to].load(Ordering::SeqCst),
        );
        yield_now().await;
        accounts[from].store(left - amount, Ordering::SeqCst);
        accounts[to].store(right + amount, Ordering::SeqCst);
    });
    moved.await
}

#[tokio::main]
async fn main() -> Outcome {
    let client = lockkit::connect("memory:").await?;
    let accounts: Accounts = Arc::new([100, 100, 100].map(AtomicI64::new));

    let mut transfers = JoinSet::new();
    for n in 0..90 {
        // Each pair, in both orders.
        let pair = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)][n % 6];
        let (client, accounts) = (client.clone(), Arc::clone(&accounts));
        transfers.spawn(async move { transfer(&client, &accounts, pair, 7).await });
    }
    while let Some(done) = transfers.join_next().await {
        done??;
    }
    let balances = accounts
        .each_ref()
        .map(|account| account.load(Ordering::SeqCst));
    println!("{balances:?} after 90 transfers");
    assert_eq!(balances, [100, 100, 100]);
    Ok(())
}
