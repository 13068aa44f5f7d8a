//! Readers and writers whose sessions end, and the notes of holders.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::DistributedLock as _;
use lockkit_zk::Names;

use crate::nodes::expire;
use crate::world::{LONG, Plot, SOON, client, client_of};

/// Long enough for a grant that must not come.
const WHILE: Duration = Duration::from_millis(400);

/// The writer behind two readers waits for the one that lives.
pub(crate) async fn dead_reader_ends_alone() -> Outcome {
    let plot = Plot::new().await?;
    let (a, b) = (client(plot.builder()).await?, client(plot.builder()).await?);
    let one = a.rw_lock("jobs")?.read().acquire().await?;
    let other = b.rw_lock("jobs")?.read().acquire().await?;
    let mut writer = acquire(&client(plot.builder()).await?.rw_lock("jobs")?.write());
    plot.queued(3).await?;
    let loss = loss_of(one);
    expire(&a).await?;
    let _lost = within(SOON, loss.soon()).await??;
    writer.waits_for(WHILE).await?;
    other.check()?;
    other.release().await?;
    within(SOON, writer.soon()).await???.release().await?;
    plot.queued(0).await
}

/// A writer whose session ends while it waits has lost its place: the readers behind it are served, and it
/// waits for them.
pub(crate) async fn dead_writer_lets_readers_in() -> Outcome {
    let plot = Plot::new().await?;
    let builder = || plot.builder().session(LONG);
    let (a, b) = (client(builder()).await?, client(plot.builder()).await?);
    let held = a.rw_lock("jobs")?.read().acquire().await?;
    let mut writer = acquire(&b.rw_lock("jobs")?.write());
    plot.queued(2).await?;
    let late = client(builder()).await?.rw_lock("jobs")?.read();
    let mut late = acquire(&late);
    plot.queued(3).await?;
    late.waits_for(WHILE).await?;
    expire(&b).await?;
    let late = within(SOON, late.soon()).await???;
    held.check()?;
    writer.waits_for(WHILE).await?;
    held.release().await?;
    late.release().await?;
    within(SOON, writer.soon()).await???.release().await?;
    plot.queued(0).await
}

/// As another program finds it: behind the ticket, or alone where names are shared with other programs.
pub(crate) async fn note_is_the_data_of_the_node() -> Outcome {
    for names in [Names::Encoded, Names::Raw] {
        let plot = Plot::new().await?;
        let store = Arc::new(plot.builder().session(LONG).names(names).connect().await?);
        let guard = client_of(Arc::clone(&store), LONG)?.lock("jobs")?;
        let guard = guard.acquire().await?;
        for note in ["10.0.0.5:7001", "10.0.0.6"] {
            ensure(store.note(guard.ticket(), note).await?, "it does not hold")?;
            let node = format!("{}/{}", plot.dir(), plot.queue().await?[0]);
            let data = plot.bare.get_data(&node).await?.0;
            let alone = names == Names::Raw;
            ensure(
                data.ends_with(note.as_bytes()) && (data == note.as_bytes()) == alone,
                node,
            )?;
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
        plot.queued(0).await?;
    }
    Ok(())
}
