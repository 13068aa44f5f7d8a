//! The order of tickets that wait where nothing tells them of their turn.

use std::time::Duration;

use conformance_tests::task::{spawn, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::{ClientId, DistributedLock as _, HolderId, LockName, PollRange};
use lockkit_sql::MysqlStore;
use tokio::time::sleep;

use crate::world::{Database as _, LONG, Maria, SOON, builder, only_rows_left};

/// Makes the step slow that ends the announcement of tickets that wait, after it has looked for their places.
const SLOW: &str = "create trigger app.slow before update on app.lockkit_locks for each row \
     set @slow = if(new.waiting_until < old.waiting_until, sleep(1), 0)";

fn ticket(number: u64) -> Outcome<Ticket> {
    let holder = HolderId::new(ClientId::random(), number);
    Ok(Ticket::new(LockName::new("jobs")?, holder, LONG))
}

/// Fails unless the result of an attempt is this.
fn expect(granted: bool, attempt: &Attempt, whose: &str) -> Outcome {
    ensure(
        matches!(attempt, Attempt::Granted(_)) == granted,
        format!("{whose}: {attempt:?}"),
    )
}

/// A ticket takes its place while the one before it takes its turn. Neither sees what the other does.
pub(crate) async fn place_that_is_taken_during_a_turn_counts() -> Outcome {
    let server = Maria::start().await?;
    // Only the test sends attempts.
    let rare = builder(&server, "lease").poll(PollRange::new(LONG, LONG));
    let store: MysqlStore = rare.connect().await?;
    let [holder, first, second, late] = [ticket(1)?, ticket(2)?, ticket(3)?, ticket(4)?];
    expect(true, &store.attempt(&holder).await?, "holder")?;
    expect(false, &store.attempt(&first).await?, "first")?;
    store.release(&holder).await?;
    server.run(SLOW).await?;
    let turn = spawn({
        let (store, first) = (store.clone(), first.clone());
        async move { store.attempt(&first).await }
    });
    sleep(Duration::from_millis(300)).await;
    expect(false, &store.attempt(&second).await?, "second")?;
    let turn = within(SOON, turn.soon()).await???;
    expect(true, &turn, "first")?;
    server.run("drop trigger app.slow").await?;
    store.release(&first).await?;
    expect(false, &store.attempt(&late).await?, "late")?;
    expect(true, &store.attempt(&second).await?, "second")?;
    for ticket in [&second, &late] {
        store.release(ticket).await?;
    }
    only_rows_left(&server).await
}
