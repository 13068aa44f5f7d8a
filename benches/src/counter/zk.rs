//! A write that names the version that was read.

use async_trait::async_trait;
use lockkit::Lock;
use lockkit::zk::{Section, Write};
use tokio::try_join;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::{Control, Counter, Update};
use crate::failure::Outcome;

#[derive(Clone)]
pub(crate) struct Node {
    client: Client,
    path: String,
}

impl Node {
    pub(crate) fn new(client: Client, path: &str) -> Self {
        Self {
            client,
            path: format!("{path}-value"),
        }
    }

    /// The value and its version.
    async fn get(&self) -> Outcome<(u64, i32)> {
        let (data, stat) = self.client.get_data(&self.path).await?;
        Ok((str::from_utf8(&data)?.parse()?, stat.version))
    }
}

#[async_trait]
impl Counter for Node {
    fn controls(&self) -> &'static [Control] {
        &[Control::Optimistic]
    }

    /// A server allows 60 connections of one address.
    fn has_room(&self) -> bool {
        false
    }

    async fn create(&self) -> Outcome {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        match self.client.create(&self.path, b"0", &options).await {
            Ok(_) => Ok(()),
            Err(Error::NodeExists) => {
                self.client.set_data(&self.path, b"0", None).await?;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn read(&self) -> Outcome<u64> {
        self.client.sync(&self.path).await?;
        Ok(self.get().await?.0)
    }

    fn section(&self, lock: Lock) -> Box<dyn Update> {
        let (section, node) = (Section::of(&lock), self.clone());
        Box::new(InSection { section, node })
    }

    async fn bare(&self, _control: Control) -> Outcome<Box<dyn Update>> {
        Ok(Box::new(self.clone()))
    }
}

struct InSection {
    section: Section,
    node: Node,
}

#[async_trait]
impl Update for InSection {
    async fn attempt(&mut self) -> Outcome<bool> {
        let entered = self.section.enter().await?;
        // Without the sync, another server of the ensemble may return what was there before.
        let synced = async { Ok(self.node.client.sync(&self.node.path).await?) };
        let ((), (value, _)) = try_join!(synced, self.node.get())?;
        let value = (value + 1).to_string();
        entered
            .commit(&[Write::set(&*self.node.path, value)])
            .await?;
        Ok(true)
    }
}

#[async_trait]
impl Update for Node {
    async fn attempt(&mut self) -> Outcome<bool> {
        let (value, version) = self.get().await?;
        let value = (value + 1).to_string();
        let set = self
            .client
            .set_data(&self.path, value.as_bytes(), Some(version));
        match set.await {
            Ok(_) => Ok(true),
            Err(Error::BadVersion) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
