//! The state of a session: several fields that depend on each other.

use std::collections::BTreeMap;

use lockkit::LockClient;
use lockkit::redis::{Command, Reply, Section};

use super::{Case, Db, Turn};
use crate::Outcome;

/// One session, with what is in its basket.
#[derive(Clone, Debug)]
pub struct Session {
    id: &'static str,
}

/// A session ends this number of seconds after its last change.
const KEPT: u64 = 3600;

/// What the fields say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Basket {
    items: u64,
    cents: u64,
    /// From a hundred euros on, a tenth of the price.
    discount: u64,
    version: u64,
}

impl Basket {
    fn read(fields: &BTreeMap<String, u64>) -> Self {
        let field = |name: &str| fields.get(name).copied().unwrap_or_default();
        Self {
            items: field("items"),
            cents: field("cents"),
            discount: field("discount"),
            version: field("version"),
        }
    }

    fn with(self, price: u64) -> Self {
        let cents = self.cents + price;
        Self {
            items: self.items + 1,
            cents,
            discount: if cents >= 10_000 { cents / 10 } else { 0 },
            version: self.version + 1,
        }
    }

    fn fields(self) -> [(&'static str, u64); 4] {
        [
            ("items", self.items),
            ("cents", self.cents),
            ("discount", self.discount),
            ("version", self.version),
        ]
    }
}

impl Session {
    /// The session with this number.
    #[must_use]
    pub const fn new(id: &'static str) -> Self {
        Self { id }
    }

    fn key(&self) -> String {
        format!("session:{}", self.id)
    }

    /// Before. Returns the number of retries.
    ///
    /// # Errors
    /// - If the server fails.
    pub async fn add_watched(&self, db: &mut Db, price: u64) -> Outcome<u64> {
        let mut retries = 0;
        loop {
            let mut look = redis::pipe();
            look.cmd("WATCH").arg(self.key()).ignore();
            look.cmd("HGETALL").arg(self.key());
            let (fields,): (BTreeMap<String, u64>,) = look.query_async(db).await?;
            let basket = Basket::read(&fields).with(price);
            let written: Option<redis::Value> = redis::pipe()
                .atomic()
                .cmd("HSET")
                .arg(self.key())
                .arg(&basket.fields())
                .cmd("EXPIRE")
                .arg(self.key())
                .arg(KEPT)
                .query_async(db)
                .await?;
            if written.is_some() {
                return Ok(retries);
            }
            // Another client was faster.
            retries += 1;
        }
    }

    /// After.
    ///
    /// # Errors
    /// - If the server fails, or the lock was lost: then nothing was written.
    pub async fn add_locked(&self, locks: &LockClient, price: u64) -> Outcome {
        let lock = locks.lock(format!("session/{}", self.id))?;
        let section = Section::of(&lock).read(Command::new("HGETALL").arg(self.key()));
        let (entered, replies) = section.enter().await?;
        let basket = Basket::read(&fields(&replies[0])).with(price);
        let set = Command::new("HSET").arg(self.key());
        let set = basket.fields().iter().fold(set, |set, (field, value)| {
            set.arg(field).arg(value.to_string())
        });
        let expire = Command::new("EXPIRE").arg(self.key()).arg(KEPT.to_string());
        entered.commit(&[set, expire]).await?;
        Ok(())
    }

    async fn look(&self, db: &mut Db) -> Outcome<Basket> {
        let fields: BTreeMap<String, u64> = redis::cmd("HGETALL")
            .arg(self.key())
            .query_async(db)
            .await?;
        Ok(Basket::read(&fields))
    }
}

impl Case for Session {
    const NAME: &'static str = "session";

    async fn reset(&self, db: &mut Db) -> Outcome {
        Ok(redis::cmd("DEL").arg(self.key()).exec_async(db).await?)
    }

    async fn watched(&self, db: &mut Db, turn: Turn) -> Outcome<u64> {
        self.add_watched(db, price(turn)).await
    }

    async fn locked(&self, locks: &LockClient, turn: Turn) -> Outcome {
        self.add_locked(locks, price(turn)).await
    }

    async fn state(&self, db: &mut Db) -> Outcome<Vec<String>> {
        let fields = self.look(db).await?.fields();
        let fields = fields.map(|(field, value)| format!("{field} {value}"));
        Ok(fields.into())
    }
}

/// The fields of a hash: in turn a name and a value.
fn fields(reply: &Reply) -> BTreeMap<String, u64> {
    let pairs = reply.as_list().chunks_exact(2);
    let pairs = pairs.filter_map(|pair| {
        let value = pair[1].as_int()?.try_into().ok()?;
        Some((pair[0].as_str()?.to_owned(), value))
    });
    pairs.collect()
}

fn price(turn: Turn) -> u64 {
    100 + turn.number % 7
}
