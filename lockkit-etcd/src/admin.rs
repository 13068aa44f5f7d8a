//! The requests of operators: inspect, break, list.

use std::collections::BTreeMap;

use etcd_client::{GetOptions, GetResponse, KeyValue, SortOrder, SortTarget, Txn, TxnOp};
use lockkit_core::contract::LockState;
use lockkit_core::{BackendError, LockName, Outcome};

use crate::error::{Failed, fault};
use crate::keys::is_contender;
use crate::queue::{delete_if, token};
use crate::shared::Shared;

/// The number of keys that one request reads.
const PAGE: i64 = 1000;
/// How often a read without an answer is repeated. It has no effect.
const READS: usize = 1;
/// How often a break reads the queue, because it found another holder than it had read.
const LOOKS: usize = 5;

impl Shared {
    /// Asks whether a server accepts this user: each of them if need be, and one of them twice.
    pub(crate) async fn greet(&self) -> Result<(), BackendError> {
        let root = self.layout.beginning("");
        // Without a prefix there is no key that the user must be allowed to read.
        let keys = (!root.is_empty()).then(|| {
            let count = GetOptions::new().with_prefix().with_count_only();
            TxnOp::get(root, Some(count))
        });
        let txn = Txn::new().and_then(Vec::from_iter(keys));
        let greet = || self.link.txn("connect", &txn);
        let answer = repeat("connect", self.link.servers(), greet).await;
        answer.map(drop)
    }

    /// Reads the state of one lock.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let first = self.first("inspect", name).await?;
        Ok(first.map(|(_, state)| state))
    }

    /// Ends a hold.
    pub(crate) async fn break_lock(
        &self,
        name: &LockName,
    ) -> Result<Option<LockState>, BackendError> {
        for _ in 0..LOOKS {
            let Some((first, state)) = self.first("break_lock", name).await? else {
                return Ok(None);
            };
            let part = first.key_str().ok().and_then(|key| key.rsplit('/').next());
            if !part.is_some_and(is_contender) {
                let why = format!("a key below lock `{name}` belongs to no lock: it is left alone");
                return Err(fault("break_lock", Outcome::Rejected, why));
            }
            let txn = delete_if(first.key(), first.create_revision());
            let answer = self.link.txn("break_lock", &txn).await;
            let answer = answer.map_err(|failed| failed.into_error("break_lock"))?;
            if answer.succeeded() {
                return Ok(Some(state));
            }
        }
        let why = "the holder changed with each look";
        Err(fault("break_lock", Outcome::Unavailable, why))
    }

    /// Lists the locks whose names begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let beginning = self.layout.beginning(prefix).into_bytes();
        let end = after(&beginning);
        let mut from = if beginning.is_empty() {
            vec![0]
        } else {
            beginning
        };
        let mut locks: BTreeMap<LockName, (KeyValue, i64)> = BTreeMap::new();
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE);
            let mut page = self.get("list", &from, &options).await?;
            let more = page.more();
            let keys = page.take_kvs();
            from = keys.last().map_or_else(Vec::new, |last| {
                // The next key there can be.
                let mut next = last.key().to_vec();
                next.push(0);
                next
            });
            for key in keys {
                let name = key.key_str().ok().and_then(|key| self.layout.name_of(key));
                let Some(name) = name.filter(|name| name.as_str().starts_with(prefix)) else {
                    continue;
                };
                let (first, count) = locks.entry(name).or_insert_with(|| (key.clone(), 0));
                *count += 1;
                if key.create_revision() < first.create_revision() {
                    *first = key;
                }
            }
            if !more {
                break;
            }
        }
        let mut found = Vec::new();
        for (name, (first, count)) in locks {
            found.push(self.describe("list", name, &first, count).await?);
        }
        Ok(found)
    }

    /// Reads the first key of a lock, which is the holder's, and describes the lock.
    async fn first(
        &self,
        operation: &'static str,
        name: &LockName,
    ) -> Result<Option<(KeyValue, LockState)>, BackendError> {
        let directory = self.layout.directory(name);
        let options = GetOptions::new()
            .with_prefix()
            .with_sort(SortTarget::Create, SortOrder::Ascend)
            .with_limit(1);
        let mut keys = self.get(operation, directory.as_bytes(), &options).await?;
        let count = keys.count();
        let Some(first) = keys.take_kvs().pop() else {
            return Ok(None);
        };
        let state = self.describe(operation, name.clone(), &first, count);
        let state = state.await?;
        Ok(Some((first, state)))
    }

    async fn get(
        &self,
        operation: &'static str,
        key: &[u8],
        options: &GetOptions,
    ) -> Result<GetResponse, BackendError> {
        let get = || self.link.get(operation, key, options);
        repeat(operation, READS, get).await
    }

    async fn describe(
        &self,
        operation: &'static str,
        name: LockName,
        first: &KeyValue,
        count: i64,
    ) -> Result<LockState, BackendError> {
        let remaining = self.link.remaining(operation, first.lease()).await;
        let remaining = remaining.map_err(|failed| failed.into_error(operation))?;
        // Go's mutex writes no value, but its key names its lease.
        let holder = match first.value_str() {
            Ok(holder) if !holder.is_empty() => holder.to_owned(),
            _ => String::from_utf8_lossy(first.key())
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        Ok(LockState::new(name)
            .with_holder(holder)
            .with_token(token(first.create_revision(), self.token_base))
            .with_waiters(u32::try_from(count - 1).ok())
            .with_remaining(remaining))
    }
}

/// Sends a request without effect again, up to `left` times, unless the server rejects it.
async fn repeat<T, F>(
    operation: &'static str,
    mut left: usize,
    request: impl Fn() -> F,
) -> Result<T, BackendError>
where
    F: Future<Output = Result<T, Failed>>,
{
    loop {
        let answer = request().await;
        match answer.map_err(|failed| failed.into_error(operation)) {
            Err(error) if error.outcome() != Outcome::Rejected && left > 0 => left -= 1,
            answer => return answer,
        }
    }
}

/// The end of the range of all keys that begin with `beginning`.
fn after(beginning: &[u8]) -> Vec<u8> {
    let mut end = beginning.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_behind_all_that_begin_alike() {
        assert_eq!(after(b"a/"), b"a0");
        assert_eq!(after(&[b'a', 0xff]), b"b");
        assert_eq!(after(b""), [0]);
    }
}
