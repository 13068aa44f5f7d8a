//! The lock service of etcd itself, with a lease for each contender.

use async_trait::async_trait;
use etcd_client::{Client, LockOptions};
use lockkit::url::StoreUrl;

use crate::bare::Contender;
use crate::failure::Outcome;
use crate::turns::Taken;

/// Nothing renews the lease, which is longer than any measurement.
const TTL: i64 = 1800;

pub(super) struct Turn {
    client: Client,
    lease: i64,
    name: String,
}

impl Turn {
    pub(super) async fn new(url: &StoreUrl, name: &str) -> Outcome<Self> {
        let hosts = url.hosts().iter().map(|host| {
            let port = host.port().unwrap_or(2379);
            format!("http://{}:{port}", host.name())
        });
        let mut client = Client::connect(hosts.collect::<Vec<_>>(), None).await?;
        let lease = client.lease_grant(TTL, None).await?.id();
        let name = name.to_owned();
        Ok(Self {
            client,
            lease,
            name,
        })
    }
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        let options = LockOptions::new().with_lease(self.lease);
        let held = self.client.lock(&*self.name, Some(options)).await?;
        taken.now();
        self.client.unlock(held.key()).await?;
        Ok(())
    }
}
