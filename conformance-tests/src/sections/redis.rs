//! Sections in Redis.

use async_trait::async_trait;
use lockkit_core::Lock;
use lockkit_redis::{Command, FencedError, Reply, Section};

use super::{Entered, Sections, Written};
use crate::checker::{Entry, StoredSections};
use crate::failure::Outcome;

/// Two keys and a list, in the slot of a lock that has a `{tag}`.
pub(super) struct Redis {
    lock: Lock,
    /// Some tasks use one section together.
    shared: Section,
}

fn key(lock: &Lock, what: &str) -> String {
    format!("{}:{what}", lock.name())
}

fn section(lock: &Lock) -> Section {
    let get = |what| Command::new("GET").arg(key(lock, what));
    Section::of(lock).read(get("1")).read(get("2"))
}

fn values(replies: &[Reply]) -> [String; 2] {
    [0, 1].map(|place| {
        let value = replies.get(place).and_then(Reply::as_str);
        value.unwrap_or(Entry::START).to_owned()
    })
}

impl Redis {
    pub(super) fn new(lock: Lock) -> Self {
        let shared = section(&lock);
        Self { lock, shared }
    }
}

#[async_trait]
impl Sections for Redis {
    async fn enter(&self) -> Outcome<(Box<dyn Entered>, [String; 2])> {
        let own = fastrand::bool().then(|| section(&self.lock));
        let (entered, replies) = own.as_ref().unwrap_or(&self.shared).enter().await?;
        let (lock, read) = (self.lock.clone(), values(&replies));
        Ok((Box::new(Holding { lock, entered }), read))
    }

    async fn stored(&self) -> Outcome<StoredSections> {
        let list = Command::new("LRANGE").arg(key(&self.lock, "log"));
        let section = section(&self.lock).read(list.arg("0").arg("-1"));
        let (entered, replies) = section.enter().await?;
        let mut entries = Vec::new();
        for text in replies.get(2).map(Reply::as_list).unwrap_or_default() {
            entries.push(text.as_str().unwrap_or_default().parse()?);
        }
        entered.into_guard().release().await?;
        let last = values(&replies);
        Ok(StoredSections { entries, last })
    }
}

struct Holding {
    lock: Lock,
    entered: lockkit_redis::Entered,
}

#[async_trait]
impl Entered for Holding {
    fn token(&self) -> u64 {
        self.entered.token().get()
    }

    async fn commit(self: Box<Self>, entry: &Entry) -> Written {
        let command = |verb, what, value: &str| {
            let command = Command::new(verb).arg(key(&self.lock, what));
            command.arg(value)
        };
        let writes = [
            command("SET", "1", &entry.value),
            command("SET", "2", &entry.value),
            command("RPUSH", "log", &entry.to_string()),
        ];
        match self.entered.commit(&writes).await {
            Ok(_) => Written::Yes,
            Err(FencedError::Backend(error)) => Written::failed(&error),
            Err(error) => Written::No(error.to_string()),
        }
    }
}
