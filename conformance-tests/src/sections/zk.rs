//! Sections in ZooKeeper.

use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::Lock;
use lockkit_zk::{FencedError, Section, Write};
use tokio::sync::Mutex;
use zookeeper_client::{Acls, Client, CreateMode};

use super::{Entered, Sections, Written};
use crate::checker::{Entry, StoredSections};
use crate::failure::Outcome;

/// Two nodes, and one with a child for each entry.
pub(super) struct Zk {
    lock: Lock,
    hosts: String,
    /// It reads. A new one takes its place after a failure.
    reader: Mutex<Option<Client>>,
}

fn node(lock: &Lock, what: &str) -> String {
    format!("/{}-{what}", lock.name())
}

impl Zk {
    pub(super) fn new(url: &str, lock: Lock) -> Self {
        let hosts = url.split(['/', '?']).nth(2).unwrap_or_default();
        Self {
            lock,
            hosts: hosts.to_owned(),
            reader: Mutex::default(),
        }
    }

    async fn reader(&self) -> Outcome<Client> {
        let mut reader = self.reader.lock().await;
        if let Some(reader) = &*reader {
            return Ok(reader.clone());
        }
        let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
        let connected = connector.connect(&self.hosts).await?;
        Ok(reader.insert(connected).clone())
    }

    async fn values(&self) -> Outcome<[String; 2]> {
        let reader = self.reader().await?;
        let read = async {
            reader.sync("/").await?;
            let (one, _) = reader.get_data(&node(&self.lock, "1")).await?;
            let (two, _) = reader.get_data(&node(&self.lock, "2")).await?;
            Ok::<_, zookeeper_client::Error>([one, two])
        };
        match read.await {
            Ok([one, two]) => Ok([String::from_utf8(one)?, String::from_utf8(two)?]),
            Err(error) => {
                *self.reader.lock().await = None;
                Err(error.into())
            }
        }
    }
}

#[async_trait]
impl Sections for Zk {
    async fn prepare(&self) -> Outcome {
        let reader = self.reader().await?;
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for what in ["1", "2", "log"] {
            let node = node(&self.lock, what);
            let start = Entry::START.as_bytes();
            reader.create(&node, start, &persistent).await?;
        }
        Ok(())
    }

    async fn enter(&self) -> Outcome<(Box<dyn Entered>, [String; 2])> {
        let entered = Section::of(&self.lock).enter().await?;
        let (lock, read) = (self.lock.clone(), self.values().await?);
        Ok((Box::new(Holding { lock, entered }), read))
    }

    async fn stored(&self) -> Outcome<StoredSections> {
        let guard = self.lock.acquire().await?;
        let (last, reader) = (self.values().await?, self.reader().await?);
        let log = node(&self.lock, "log");
        let mut entries = Vec::new();
        for child in reader.list_children(&log).await? {
            let (text, _) = reader.get_data(&format!("{log}/{child}")).await?;
            entries.push(String::from_utf8(text)?.parse()?);
        }
        guard.release().await?;
        Ok(StoredSections { entries, last })
    }
}

struct Holding {
    lock: Lock,
    entered: lockkit_zk::Entered,
}

#[async_trait]
impl Entered for Holding {
    fn token(&self) -> u64 {
        self.entered.token().get()
    }

    async fn commit(self: Box<Self>, entry: &Entry) -> Written {
        let (log, text) = (node(&self.lock, "log"), entry.to_string());
        let writes = [
            Write::set(node(&self.lock, "1"), entry.value.as_str()),
            Write::set(node(&self.lock, "2"), entry.value.as_str()),
            Write::create(format!("{log}/{}", entry.value), text),
        ];
        match self.entered.commit(&writes).await {
            Ok(_) => Written::Yes,
            Err(FencedError::Backend(error)) => Written::failed(&error),
            Err(error) => Written::No(error.to_string()),
        }
    }
}
