//! A transaction that compares the revision of the last write.

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, KeyValue, Txn, TxnOp, TxnOpResponse};
use lockkit::Lock;
use lockkit::etcd::Section;

use super::{Control, Counter, Update};
use crate::failure::{Failure, Outcome};

#[derive(Clone)]
pub(crate) struct Key {
    client: Client,
    key: String,
    /// What a transaction that failed has read.
    seen: Option<(u64, i64)>,
}

impl Key {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self {
            client,
            key: format!("{name}-value"),
            seen: None,
        }
    }

    /// The value, and the revision of its last write.
    async fn get(&self) -> Outcome<(u64, i64)> {
        let found = self.client.clone().get(&*self.key, None).await?;
        parsed(found.kvs())
    }

    fn put(&self, value: u64) -> TxnOp {
        TxnOp::put(&*self.key, value.to_string(), None)
    }
}

fn parsed(found: &[KeyValue]) -> Outcome<(u64, i64)> {
    let found = found.first();
    let found = found.ok_or_else(|| Failure::new("the number is gone"))?;
    Ok((found.value_str()?.parse()?, found.mod_revision()))
}

#[async_trait]
impl Counter for Key {
    fn controls(&self) -> &'static [Control] {
        &[Control::Optimistic]
    }

    async fn create(&self) -> Outcome {
        self.client.clone().put(&*self.key, "0", None).await?;
        Ok(())
    }

    async fn read(&self) -> Outcome<u64> {
        Ok(self.get().await?.0)
    }

    fn section(&self, lock: Lock) -> Box<dyn Update> {
        let section = Section::of(&lock).read(&*self.key);
        let key = self.clone();
        Box::new(InSection { section, key })
    }

    async fn bare(&self, _control: Control) -> Outcome<Box<dyn Update>> {
        Ok(Box::new(self.clone()))
    }
}

struct InSection {
    section: Section,
    key: Key,
}

#[async_trait]
impl Update for InSection {
    async fn attempt(&mut self) -> Outcome<bool> {
        let (entered, found) = self.section.enter().await?;
        let (value, _) = parsed(found[0].kvs())?;
        let work = Txn::new().and_then([self.key.put(value + 1)]);
        entered.commit(work).await?;
        Ok(true)
    }
}

#[async_trait]
impl Update for Key {
    async fn attempt(&mut self) -> Outcome<bool> {
        let (value, revision) = match self.seen.take() {
            Some(seen) => seen,
            None => self.get().await?,
        };
        let swap = Txn::new()
            .when([Compare::mod_revision(
                &*self.key,
                CompareOp::Equal,
                revision,
            )])
            .and_then([self.put(value + 1)])
            .or_else([TxnOp::get(&*self.key, None)]);
        let done = self.client.txn(swap).await?;
        if let Some(TxnOpResponse::Get(found)) = done.op_responses().first() {
            self.seen = Some(parsed(found.kvs())?);
        }
        Ok(done.succeeded())
    }
}
