//! Many locks on a slow network, as an operator sees them.

use std::time::Duration;

use conformance_tests::servers::EtcdCluster;
use conformance_tests::{Outcome, ensure};
use etcd_client::PutOptions;

use crate::world::{LONG, behind, proxy};

/// One after the other, requests for so many leases would take longer than the client waits.
const CLIENTS: usize = 150;
const DELAY: Duration = Duration::from_millis(10);

pub(crate) async fn many_leases_are_read_at_once() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    for number in 0..CLIENTS {
        let lease = asker.lease_grant(60, None).await?.id();
        let options = Some(PutOptions::new().with_lease(lease));
        let key = format!("lockkit/job-{number}/{lease:x}-1");
        asker.put(key, "", options.clone()).await?;
        let key = format!("lockkit/readers/s{lease:x}-1");
        asker.put(key, "", options).await?;
    }
    let proxy = proxy(&cluster).await?;
    let client = behind(&proxy, LONG).await?;
    proxy.delay_both(DELAY);
    let listed = client.list("").await?;
    ensure(
        listed.len() == CLIENTS + 1,
        format!("{} locks", listed.len()),
    )?;
    let mut holders = listed.iter().flat_map(|lock| &lock.holders);
    ensure(
        holders.all(|holder| holder.remaining.is_some()),
        "a lease was not read",
    )?;
    ensure(
        listed.is_sorted_by(|one, other| one.name.as_str() < other.name.as_str()),
        "the locks are in no order",
    )?;
    let readers = client.lock("readers")?.inspect().await?;
    let count = readers.map_or(0, |readers| readers.holders.len());
    ensure(count == CLIENTS, format!("{count} readers"))
}
