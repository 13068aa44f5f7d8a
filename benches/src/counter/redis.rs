//! `WATCH`, `MULTI` and `EXEC`.

use async_trait::async_trait;
use lockkit::Lock;
use lockkit::redis::{Command, Section};
use redis::Client;
use redis::aio::MultiplexedConnection;

use super::{Control, Counter, Update};
use crate::failure::Outcome;

pub(crate) struct Key {
    client: Client,
    connection: MultiplexedConnection,
    key: String,
}

impl Key {
    pub(crate) fn new(client: Client, connection: MultiplexedConnection, name: &str) -> Self {
        Self {
            client,
            connection,
            key: format!("{name}:value"),
        }
    }
}

#[async_trait]
impl Counter for Key {
    fn controls(&self) -> &'static [Control] {
        &[Control::Optimistic]
    }

    async fn create(&self) -> Outcome {
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg(0);
        Ok(set.exec_async(&mut self.connection.clone()).await?)
    }

    async fn read(&self) -> Outcome<u64> {
        let mut get = redis::cmd("GET");
        get.arg(&self.key);
        Ok(get.query_async(&mut self.connection.clone()).await?)
    }

    fn section(&self, lock: Lock) -> Box<dyn Update> {
        let key = self.key.clone();
        let section = Section::of(&lock).read(Command::new("GET").arg(&key));
        Box::new(InSection { section, key })
    }

    async fn bare(&self, _control: Control) -> Outcome<Box<dyn Update>> {
        // A watch belongs to a connection.
        let connection = self.client.get_multiplexed_async_connection().await?;
        let key = self.key.clone();
        Ok(Box::new(Watched { connection, key }))
    }
}

struct InSection {
    section: Section,
    key: String,
}

#[async_trait]
impl Update for InSection {
    async fn attempt(&mut self) -> Outcome<bool> {
        let (entered, replies) = self.section.enter().await?;
        let value = replies[0].as_int().unwrap_or(0) + 1;
        let set = Command::new("SET").arg(&self.key).arg(value.to_string());
        entered.commit(&[set]).await?;
        Ok(true)
    }
}

struct Watched {
    connection: MultiplexedConnection,
    key: String,
}

#[async_trait]
impl Update for Watched {
    async fn attempt(&mut self) -> Outcome<bool> {
        let mut read = redis::pipe();
        read.cmd("WATCH").arg(&self.key).ignore();
        read.cmd("GET").arg(&self.key);
        let (value,): (u64,) = read.query_async(&mut self.connection).await?;
        let mut write = redis::pipe();
        write.atomic().cmd("SET").arg(&self.key).arg(value + 1);
        let written: Option<redis::Value> = write.query_async(&mut self.connection).await?;
        Ok(written.is_some())
    }
}
