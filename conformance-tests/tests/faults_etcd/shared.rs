//! Readers, writers and permits that end with their leases, and the notes of holders.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};
use etcd_client::GetOptions;
use lockkit_core::contract::DistributedLock as _;
use lockkit_etcd::Names;

use crate::world::{LONG, SOON, TTL, builder, client, client_of, contenders, lease, store, taker};

/// Long enough for a grant that must not come.
const WHILE: Duration = Duration::from_millis(400);

/// The writer behind two readers waits for the one that lives.
pub(crate) async fn dead_reader_ends_alone() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let dead = store(&cluster).await?;
    let one = client_of(&dead, LONG)?.rw_lock("jobs")?.read();
    let other = client(&cluster, LONG).await?.rw_lock("jobs")?.read();
    let (one, other) = (one.acquire().await?, other.acquire().await?);
    let mut writer = acquire(&client(&cluster, LONG).await?.rw_lock("jobs")?.write());
    contenders(&mut asker, 3).await?;
    let loss = loss_of(one);
    asker.lease_revoke(lease(&dead)?).await?;
    let _lost = within(SOON, loss.soon()).await??;
    writer.waits_for(WHILE).await?;
    other.check()?;
    other.release().await?;
    within(SOON, writer.soon()).await???.release().await?;
    Ok(())
}

/// The readers behind a writer that died while it waited are served when its lease has ended.
pub(crate) async fn dead_writer_lets_readers_in() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let reading = client(&cluster, LONG).await?.rw_lock("jobs")?.read();
    let held = reading.acquire().await?;
    let mut writer = taker(&cluster, TTL).await?;
    writer.send("acquire jobs").await?;
    contenders(&mut asker, 2).await?;
    let late = client(&cluster, LONG).await?.rw_lock("jobs")?.read();
    let mut late = acquire(&late);
    late.waits_for(WHILE).await?;
    writer.kill().await?;
    within(SOON, late.soon()).await???.release().await?;
    held.check()?;
    Ok(held.release().await?)
}

/// One lease takes the key of a permit and that of the writer which waits for it, in one revision.
pub(crate) async fn lease_end_takes_holder_and_waiting_writer_together() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    for _ in 0..5 {
        let dead = store(&cluster).await?;
        let held = client_of(&dead, LONG)?
            .semaphore("jobs", 2)?
            .acquire()
            .await?;
        let writer = acquire(&client_of(&dead, LONG)?.rw_lock("jobs")?.write());
        contenders(&mut asker, 2).await?;
        let living = client(&cluster, LONG).await?;
        let (reader, permit) = (living.rw_lock("jobs")?.read(), living.semaphore("jobs", 2)?);
        let (mut reader, mut permit) = (acquire(&reader), acquire(&permit));
        contenders(&mut asker, 4).await?;
        reader.waits_for(WHILE).await?;
        permit.waits_for(Duration::from_millis(1)).await?;
        asker.lease_revoke(lease(&dead)?).await?;
        let reader = within(SOON, reader.soon()).await???;
        let permit = within(SOON, permit.soon()).await???;
        within(SOON, held.lost()).await?;
        reader.release().await?;
        permit.release().await?;
        within(SOON, writer.soon()).await???.release().await?;
        contenders(&mut asker, 0).await?;
    }
    Ok(())
}

/// As another program finds it: behind the ticket, or alone where names are shared with other programs.
pub(crate) async fn note_is_the_value_of_the_key() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    for names in [Names::Encoded, Names::Raw] {
        let store = builder(&cluster.ports()).names(names).root("lockkit");
        let store = store.connect().await?;
        let guard = client_of(&store, LONG)?.lock("jobs")?.acquire().await?;
        for note in ["10.0.0.5:7001", "10.0.0.6"] {
            ensure(store.note(guard.ticket(), note).await?, "it does not hold")?;
            let found = asker.get("lockkit/jobs/", Some(GetOptions::new().with_prefix()));
            let value = found.await?.kvs()[0].value_str()?.to_owned();
            let alone = names == Names::Raw;
            ensure(value.ends_with(note) && (value == note) == alone, value)?;
            let seen = store.inspect(guard.name()).await?;
            let shown = seen
                .iter()
                .flat_map(|it| &it.holders)
                .map(|it| it.note.as_deref());
            ensure(shown.eq([Some(note)]), format!("{seen:?}"))?;
        }
        guard.check()?;
        let ticket = guard.ticket().clone();
        guard.release().await?;
        ensure(
            !store.note(&ticket, "late").await?,
            "a released ticket has a note",
        )?;
        contenders(&mut asker, 0).await?;
    }
    Ok(())
}
