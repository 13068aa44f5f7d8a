//! Readers and writers whose sessions end.

use std::time::Duration;

use conformance_tests::Outcome;
use conformance_tests::task::{acquire, within};

use crate::nodes::expire;
use crate::world::{LONG, Plot, SOON, client, loss_of};

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
