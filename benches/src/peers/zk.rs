//! `Client::lock` of `zookeeper-client`, with a session for each contender.

use async_trait::async_trait;
use lockkit::url::StoreUrl;
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

use crate::bare::Contender;
use crate::failure::Outcome;
use crate::turns::Taken;

pub(super) struct Turn {
    client: Client,
    directory: String,
}

impl Turn {
    pub(super) async fn new(url: &StoreUrl, name: &str) -> Outcome<Self> {
        let hosts = url.hosts().iter().map(|host| {
            let port = host.port().unwrap_or(2181);
            format!("{}:{port}", host.name())
        });
        let client = Client::connect(&hosts.collect::<Vec<_>>().join(",")).await?;
        let directory = format!("/{name}");
        Ok(Self { client, directory })
    }
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        let prefix = LockPrefix::new_curator(&self.directory, "lock-")?;
        let parents = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents)?;
        let held = self.client.lock(prefix, b"", options).await?;
        taken.now();
        // Its node is deleted behind our back: there is nothing to wait for.
        drop(held);
        Ok(())
    }
}
