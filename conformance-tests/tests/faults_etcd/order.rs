//! Who is served when.

use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, ensure};

use crate::world::{LONG, SOON, client, contenders, keys, taker};

/// Each waiter is a process of its own; one is this one, with a store beside that of the holder.
pub(crate) async fn nine_waiters_in_nine_processes_are_served_in_order() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let held = client(&cluster, LONG)
        .await?
        .lock("jobs")?
        .acquire()
        .await?;
    let mine = client(&cluster, LONG).await?.lock("jobs")?;
    let mut takers = Vec::new();
    for _ in 0..8 {
        takers.push(taker(&cluster, LONG).await?);
    }
    let mut own = None;
    let mut standing = 1;
    for (place, taker) in takers.iter_mut().enumerate() {
        if place == 4 {
            own = Some(acquire(&mine));
            standing += 1;
            contenders(&mut asker, standing).await?;
        }
        taker.send("acquire jobs").await?;
        standing += 1;
        contenders(&mut asker, standing).await?;
    }
    let mut last = held.token().get();
    held.release().await?;
    for (place, taker) in takers.iter_mut().enumerate() {
        if place == 4
            && let Some(own) = own.take()
        {
            let guard = within(SOON, own.soon()).await???;
            ensure(guard.token().get() > last, "served out of order")?;
            last = guard.token().get();
            guard.release().await?;
        }
        let event = taker.answer(SOON).await?;
        let token = event.and_then(|event| event.token);
        let token = token.ok_or_else(|| Failure::new("not granted"))?;
        ensure(
            token > last,
            format!("{token} after {last}: served out of order"),
        )?;
        last = token;
        // Nobody behind it has been served.
        standing = keys(&mut asker).await?.len();
        ensure(
            standing == 8 - place + usize::from(place < 4),
            format!("{standing} stand in the queue"),
        )?;
        taker.run("release").await?;
    }
    contenders(&mut asker, 0).await?;
    Ok(())
}
