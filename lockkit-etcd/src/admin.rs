//! The requests of operators: inspect, break, list.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use etcd_client::{GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use lockkit_core::contract::{Holder, LockState, Mode};
use lockkit_core::store::predecessors::holding;
use lockkit_core::store::{of_break, tag};
use lockkit_core::{LockName, Outcome};

use crate::error::{Result, fault, unreadable};
use crate::keys::{self, is_contender};
use crate::queue::{delete_if, gets};
use crate::shared::Shared;

/// The number of keys that one request reads.
const PAGE: i64 = 1000;
/// The number of keys that one transaction deletes.
const TXN: usize = 100;
/// How many leases are asked for at once.
const AT_ONCE: usize = 64;
/// How often a read without an answer is repeated. It has no effect.
const READS: usize = 1;
/// How often a break reads the queue, because the holders had gone.
const LOOKS: usize = 5;

/// What is left of each lease; `None` if it has ended.
type Leases = HashMap<i64, Option<Duration>>;

impl Shared {
    /// Asks whether a server accepts this user: each of them if need be, and one of them twice.
    pub(crate) async fn greet(&self) -> Result<()> {
        let root = self.layout.beginning("");
        // Without a prefix there is no key that the user must be allowed to read.
        let keys = (!root.is_empty()).then(|| {
            let count = GetOptions::new().with_prefix().with_count_only();
            TxnOp::get(root, Some(count))
        });
        let txn = Txn::new().and_then(Vec::from_iter(keys));
        let servers = self.link.servers();
        self.read_again("connect", &txn, servers).await.map(drop)
    }

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Option<LockState>> {
        let line = self.keys("inspect", &self.layout.directory(name)).await?;
        let leases = self.leases("inspect", [&line]).await?;
        Ok(self.describe(name.clone(), &line, &leases))
    }

    pub(crate) async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>> {
        for _ in 0..LOOKS {
            let line = self
                .keys("break_lock", &self.layout.directory(name))
                .await?;
            let leases = self.leases("break_lock", [&line]).await?;
            let Some(state) = self.describe(name.clone(), &line, &leases) else {
                return Ok(None);
            };
            let holding: Vec<&KeyValue> = holding(&line, mode).collect();
            if !holding.iter().all(|key| is_contender(&last_part(key))) {
                let why = format!("a key below lock `{name}` belongs to no lock: it is left alone");
                return Err(fault("break_lock", Outcome::Rejected, why));
            }
            let mut broken = false;
            for page in holding.chunks(TXN) {
                let delete = |key: &&KeyValue| delete_if(key.key(), key.create_revision());
                let txn = Txn::new()
                    .and_then(page.iter().map(delete).map(TxnOp::txn).collect::<Vec<_>>());
                let answer = self.link.txn("break_lock", &txn).await;
                let answer =
                    answer.map_err(|failed| of_break(failed.into_error("break_lock"), broken))?;
                let done =
                    |op: &TxnOpResponse| matches!(op, TxnOpResponse::Txn(it) if it.succeeded());
                broken |= answer.op_responses().iter().any(done);
            }
            if broken {
                return Ok(Some(state));
            }
        }
        let why = "the holders changed with each look";
        Err(fault("break_lock", Outcome::Unavailable, why))
    }

    /// Lists the locks whose names begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let beginning = self.layout.beginning(prefix);
        let mut lines: BTreeMap<LockName, Vec<KeyValue>> = BTreeMap::new();
        for key in self.keys("list", &beginning).await? {
            let name = key.key_str().ok().and_then(|key| self.layout.name_of(key));
            if let Some(name) = name.filter(|name| name.as_str().starts_with(prefix)) {
                lines.entry(name).or_default().push(key);
            }
        }
        let leases = self.leases("list", lines.values()).await?;
        let described = lines
            .into_iter()
            .filter_map(|(name, line)| self.describe(name, &line, &leases));
        Ok(described.collect())
    }

    /// Reads all keys that begin alike, in the order in which they were created.
    async fn keys(&self, operation: &'static str, beginning: &str) -> Result<Vec<KeyValue>> {
        // No text ends with the largest byte. Two zeros are the range of all keys.
        let mut from = beginning.as_bytes().to_vec();
        let mut end = from.clone();
        match end.last_mut() {
            Some(last) => *last += 1,
            None => (from, end) = (vec![0], vec![0]),
        }
        let options = GetOptions::new().with_range(end).with_limit(PAGE);
        let mut keys = Vec::new();
        loop {
            let txn = Txn::new().and_then([TxnOp::get(&*from, Some(options.clone()))]);
            let answer = self.read_again(operation, &txn, READS).await?;
            let page = gets(answer.op_responses()).pop();
            let mut page = page.ok_or_else(|| unreadable(operation))?;
            keys.append(&mut page.take_kvs());
            match keys.last() {
                Some(last) if page.more() => {
                    // The next key there can be.
                    from = last.key().to_vec();
                    from.push(0);
                }
                _ => break,
            }
        }
        keys.sort_unstable_by_key(KeyValue::create_revision);
        Ok(keys)
    }

    /// Sends a request without effect again, up to `left` times, unless the server rejects it.
    async fn read_again(
        &self,
        operation: &'static str,
        txn: &Txn,
        mut left: usize,
    ) -> Result<TxnResponse> {
        loop {
            let answer = self.link.txn(operation, txn).await;
            match answer.map_err(|failed| failed.into_error(operation)) {
                Err(error) if error.outcome() != Outcome::Rejected && left > 0 => left -= 1,
                answer => return answer,
            }
        }
    }

    /// Reads what is left of the leases of those that hold. Many holds of a client share one.
    async fn leases<'a>(
        &self,
        operation: &'static str,
        lines: impl IntoIterator<Item = &'a Vec<KeyValue>>,
    ) -> Result<Leases> {
        let holding = lines.into_iter().flat_map(|line| holding(line, mode));
        let leases = holding.map(KeyValue::lease).filter(|lease| *lease != 0);
        let leases: HashSet<i64> = leases.collect();
        let read = stream::iter(leases).map(|lease| async move {
            let remaining = self.link.remaining(operation, lease).await;
            let remaining = remaining.map_err(|failed| failed.into_error(operation))?;
            Ok((lease, remaining))
        });
        read.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Describes a lock by all its keys; `None` if there is none.
    fn describe(&self, name: LockName, line: &[KeyValue], leases: &Leases) -> Option<LockState> {
        let mut state = LockState::new(name);
        for key in holding(line, mode) {
            let holder = match key.value_str().map(|text| (tag::read(text), text)) {
                Ok((Some(holder), _)) => Holder {
                    mode: Some(mode(key)),
                    ..holder
                },
                // Go's mutex writes no value, but its key names its lease. Its election writes a note.
                Ok((None, text)) if !text.is_empty() => Holder {
                    note: Some(text.to_owned()),
                    ..Holder::new(last_part(key))
                },
                _ => Holder::new(last_part(key)),
            };
            state = state.with_holder(Holder {
                token: Some(self.token(key.create_revision())),
                remaining: leases.get(&key.lease()).copied().flatten(),
                ..holder
            });
        }
        state.waiters = u32::try_from(line.len() - state.holders.len()).ok();
        (!line.is_empty()).then_some(state)
    }
}

fn mode(key: &KeyValue) -> Mode {
    keys::mode(&String::from_utf8_lossy(key.key()))
}

fn last_part(key: &KeyValue) -> String {
    keys::last_part(&String::from_utf8_lossy(key.key())).to_owned()
}
