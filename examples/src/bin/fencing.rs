//! A resource that refuses a writer that has lost its lock: the one protection that no pause and no clock
//! can break.
//!
//! Run it: `cargo run -p lockkit-examples --bin fencing`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockkit::{FencingToken, Lease};
use lockkit_examples::Outcome;
use tokio::time::sleep;

/// What the lock protects. In a database it is a column: `UPDATE .. SET value = $1, token = $2 WHERE
/// id = $3 AND token <= $2`, and no row means refused.
#[derive(Debug, Default)]
struct Ledger(Mutex<(Option<FencingToken>, Vec<&'static str>)>);

impl Ledger {
    /// Writes, unless a holder with a larger token has written before.
    fn write(&self, line: &'static str, token: FencingToken) -> Result<(), &'static str> {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ledger.0 > Some(token) {
            return Err("a newer holder has written");
        }
        ledger.0 = Some(token);
        ledger.1.push(line);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let ledger = Ledger::default();
    let client = lockkit::connect("memory:").await?;
    // A lease without renewal simulates a process that is paused together with its renewals.
    let lock = client.lock("ledger")?;
    let short = lock
        .clone()
        .with_lease(Lease::fixed(Duration::from_millis(200)))?;

    let slow = short.acquire().await?;
    ledger.write("begun by the slow one", slow.token())?;
    sleep(Duration::from_millis(400)).await;

    let quick = lock.acquire().await?;
    ledger.write("finished by the quick one", quick.token())?;

    // The slow one wakes, and has not checked its guard since it began.
    let refused = ledger.write("finished by the slow one", slow.token());
    println!("the slow one: {refused:?}");
    assert!(refused.is_err());
    // It could have known: the guard reads the clock.
    let check = slow.check();
    println!("its guard: {check:?}");
    assert!(check.is_err());
    quick.release().await?;
    let lines = ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
    println!("the ledger: {:?}", lines.1);
    Ok(())
}
