//! Many locks on a slow network, as an operator sees them.

use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::{Outcome, ensure};
use lockkit_zk::{Auth, Names};
use zookeeper_client::{Acls, CreateMode};

use crate::world::{LONG, Plot, client};

/// One after the other, requests for so many locks would take longer than the client waits.
const LOCKS: usize = 150;
const DELAY: Duration = Duration::from_millis(10);

pub(crate) async fn many_locks_are_read_at_once() -> Outcome {
    let plot = Plot::new().await?;
    let folder = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for number in 0..LOCKS {
        let path = format!("{}/job-{number:03}", plot.root);
        plot.bare.mkdir(&path, &folder).await?;
        let path = format!("{path}/_c_00000000-0000-0000-0000-000000000000-lock-");
        plot.bare.create(&path, b"", &node).await?;
    }
    let proxy = Proxy::start(([127, 0, 0, 1], plot.port).into()).await?;
    for names in [Names::Encoded, Names::Raw] {
        let behind = plot.builder_at(proxy.addr().port()).names(names);
        let client = client(behind.session(LONG)).await?;
        proxy.delay_both(DELAY);
        let listed = client.list("").await?;
        proxy.heal();
        ensure(listed.len() == LOCKS, format!("{} locks", listed.len()))?;
        ensure(
            listed.iter().all(|lock| lock.holders.len() == 1),
            "a holder was not read",
        )?;
        ensure(
            listed.is_sorted_by(|one, other| one.name.as_str() < other.name.as_str()),
            "the locks are in no order",
        )?;
    }
    Ok(())
}

/// An operator without all passwords sees the others.
pub(crate) async fn list_shows_locks_of_other_users_too() -> Outcome {
    let plot = Plot::new().await?;
    for names in [Names::Encoded, Names::Raw] {
        let builder = || plot.builder().names(names);
        let app = client(builder().user(Auth::Digest, "app", "s3cret")).await?;
        let (open, operator) = (client(builder()).await?, client(builder()).await?);
        let holds = [
            open.lock("a")?.acquire().await?,
            app.lock("b")?.acquire().await?,
            open.lock("c")?.acquire().await?,
        ];
        let listed = operator.list("").await?;
        let seen: Vec<_> = listed.iter().map(|lock| lock.name.as_str()).collect();
        ensure(seen == ["a", "b", "c"], format!("{listed:?}"))?;
        let mut holders = listed.iter().flat_map(|lock| &lock.holders);
        let unknown = holders.nth(1).map(|holder| holder.id.as_str());
        ensure(
            unknown == Some("(unknown: this user may not read the lock)"),
            format!("{listed:?}"),
        )?;
        for hold in holds {
            hold.release().await?;
        }
    }
    Ok(())
}
