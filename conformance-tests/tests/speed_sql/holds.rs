//! Many leases that are kept.

use std::time::Duration;

use conformance_tests::task::spawn;
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::{Renewal, Ticket};
use lockkit_core::{ClientId, HolderId, LockName};

use crate::world::{Database, For};

const HOLDS: u64 = 5000;
const BATCH: u64 = 500;

/// One round of renewals.
pub(crate) async fn five_thousand_leases_are_renewed_in_ten_statements<D: Database>() -> Outcome {
    let server = D::start(For::Count).await?;
    let client = D::client_at(server.port(), false).await?;
    let store = std::sync::Arc::clone(client.backend());
    let me = ClientId::random();
    let tickets: Vec<Ticket> = (0..HOLDS)
        .map(|number| {
            let name = LockName::new(format!("held/{number}"))?;
            let holder = HolderId::new(me, number + 1);
            Ok(Ticket::new(name, holder, Duration::from_secs(120)))
        })
        .collect::<Outcome<_>>()?;
    let parts = tickets.chunks(625).map(|part| {
        let (part, store) = (part.to_vec(), std::sync::Arc::clone(&store));
        spawn(async move {
            for ticket in &part {
                store.attempt(ticket).await?;
            }
            Outcome::Ok(())
        })
    });
    for part in parts.collect::<Vec<_>>() {
        part.soon().await??;
    }
    let before = server.updates().await?;
    let start = tokio::time::Instant::now();
    let answers = store.renew(&tickets).await;
    let took = start.elapsed();
    let renewed = |answer: &&Result<Renewal, _>| matches!(answer, Ok(Renewal::Renewed { .. }));
    let kept = answers.iter().filter(renewed).count();
    let statements = server.updates().await? - before;
    println!("{HOLDS} leases: renewed in {took:?}, {statements} statements");
    ensure(
        kept == tickets.len(),
        format!("{kept} of {HOLDS} were renewed"),
    )?;
    // The server may count a transaction of its own, and the question itself.
    let few = statements <= HOLDS / BATCH + 3;
    ensure(few, format!("{statements} statements"))
}
