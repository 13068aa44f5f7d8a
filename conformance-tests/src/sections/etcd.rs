//! Sections in etcd.

use async_trait::async_trait;
use etcd_client::{GetResponse, Txn, TxnOp};
use lockkit_core::Lock;
use lockkit_etcd::{FencedError, Section};

use super::{Entered, Sections, Written};
use crate::checker::{Entry, StoredSections};
use crate::failure::Outcome;

/// Two keys, and one for each entry.
pub(super) struct Etcd {
    lock: Lock,
    /// Some tasks use one section together.
    shared: Section,
}

fn key(lock: &Lock, what: &str) -> String {
    format!("sections/{}/{what}", lock.name())
}

fn section(lock: &Lock) -> Section {
    let section = Section::of(lock).read(key(lock, "1"));
    section.read(key(lock, "2"))
}

fn values(found: &[GetResponse]) -> Outcome<[String; 2]> {
    let value = |place: usize| -> Outcome<String> {
        let kv = found.get(place).and_then(|get| get.kvs().first());
        let value = kv.map(etcd_client::KeyValue::value_str).transpose()?;
        Ok(value.unwrap_or(Entry::START).to_owned())
    };
    Ok([value(0)?, value(1)?])
}

impl Etcd {
    pub(super) fn new(lock: Lock) -> Self {
        let shared = section(&lock);
        Self { lock, shared }
    }
}

#[async_trait]
impl Sections for Etcd {
    async fn enter(&self) -> Outcome<(Box<dyn Entered>, [String; 2])> {
        let own = fastrand::bool().then(|| section(&self.lock));
        let (entered, found) = own.as_ref().unwrap_or(&self.shared).enter().await?;
        let (lock, read) = (self.lock.clone(), values(&found)?);
        Ok((Box::new(Holding { lock, entered }), read))
    }

    async fn stored(&self) -> Outcome<StoredSections> {
        let section = section(&self.lock).read_prefix(key(&self.lock, "log/"));
        let (entered, found) = section.enter().await?;
        let mut entries = Vec::new();
        for kv in found.get(2).map(GetResponse::kvs).unwrap_or_default() {
            for _ in 0..kv.version() {
                entries.push(kv.value_str()?.parse()?);
            }
        }
        entered.into_guard().release().await?;
        let last = values(&found)?;
        Ok(StoredSections { entries, last })
    }
}

struct Holding {
    lock: Lock,
    entered: lockkit_etcd::Entered,
}

#[async_trait]
impl Entered for Holding {
    fn token(&self) -> u64 {
        self.entered.token().get()
    }

    async fn commit(self: Box<Self>, entry: &Entry) -> Written {
        let put = |what: &str, value: &str| TxnOp::put(key(&self.lock, what), value, None);
        let work = [
            put("1", &entry.value),
            put("2", &entry.value),
            put(&format!("log/{}", entry.value), &entry.to_string()),
        ];
        match self.entered.commit(Txn::new().and_then(work)).await {
            Ok(_) => Written::Yes,
            Err(FencedError::Backend(error)) => Written::failed(&error),
            Err(error) => Written::No(error.to_string()),
        }
    }
}
