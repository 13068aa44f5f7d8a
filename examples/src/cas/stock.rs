//! Stock that must never be oversold.

use lockkit::LockClient;
use lockkit::redis::{Command, Fenced, Script, Section};

use super::{Case, Db, Turn};
use crate::Outcome;

/// One article and its initial stock.
#[derive(Clone, Debug)]
pub struct Stock {
    article: &'static str,
    first: u64,
}

impl Stock {
    /// An article with this initial stock.
    #[must_use]
    pub const fn new(article: &'static str, first: u64) -> Self {
        Self { article, first }
    }

    fn left(&self) -> String {
        format!("stock:{}:left", self.article)
    }

    fn orders(&self) -> String {
        format!("stock:{}:orders", self.article)
    }

    /// Before. Returns whether one was left, and the number of retries.
    ///
    /// # Errors
    /// - If the server fails.
    pub async fn buy_watched(&self, db: &mut Db, order: &str) -> Outcome<(bool, u64)> {
        let mut retries = 0;
        loop {
            let mut look = redis::pipe();
            look.cmd("WATCH").arg(self.left()).ignore();
            look.cmd("GET").arg(self.left());
            let (left,): (u64,) = look.query_async(db).await?;
            if left == 0 {
                redis::cmd("UNWATCH").exec_async(db).await?;
                return Ok((false, retries));
            }
            let bought: Option<redis::Value> = redis::pipe()
                .atomic()
                .cmd("SET")
                .arg(self.left())
                .arg(left - 1)
                .cmd("RPUSH")
                .arg(self.orders())
                .arg(order)
                .query_async(db)
                .await?;
            if bought.is_some() {
                return Ok((true, retries));
            }
            // Another client was faster.
            retries += 1;
        }
    }

    /// After. Returns whether one was left.
    ///
    /// # Errors
    /// - If the server fails, or the lock was lost: then nothing was written.
    pub async fn buy_locked(&self, locks: &LockClient, order: &str) -> Outcome<bool> {
        let lock = locks.lock(format!("stock/{}", self.article))?;
        let section = Section::of(&lock).read(Command::new("GET").arg(self.left()));
        let (entered, replies) = section.enter().await?;
        let left = replies[0].as_int().unwrap_or(0);
        if left == 0 {
            entered.into_guard().release().await?;
            return Ok(false);
        }
        let set = Command::new("SET").arg(self.left());
        let set = set.arg((left - 1).to_string());
        let push = Command::new("RPUSH").arg(self.orders()).arg(order);
        entered.commit(&[set, push]).await?;
        Ok(true)
    }

    /// In between, while old programs still use [`buy_watched`](Self::buy_watched). They detect our writes,
    /// because they watch the data, but they take no lock. So the write compares what was read, which only
    /// they can have changed.
    ///
    /// # Errors
    /// - As [`buy_locked`](Self::buy_locked).
    pub async fn buy_beside_the_old(
        &self,
        db: &mut Db,
        locks: &LockClient,
        order: &str,
    ) -> Outcome<bool> {
        let compare_and_write = Script::new(
            "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
             redis.call('SET', KEYS[1], ARGV[2])
             redis.call('RPUSH', KEYS[2], ARGV[3])
             return 1",
        );
        let lock = locks.lock(format!("stock/{}", self.article))?;
        let guard = lock.acquire().await?;
        let fenced = Fenced::by(locks, &guard).ok_or("the locks are not in this Redis server")?;
        let (left_key, orders_key) = (self.left(), self.orders());
        let bought = loop {
            let left: u64 = redis::cmd("GET").arg(&left_key).query_async(db).await?;
            if left == 0 {
                break false;
            }
            let (before, after) = (left.to_string(), (left - 1).to_string());
            let arguments = [before.as_bytes(), after.as_bytes(), order.as_bytes()];
            let keys = [left_key.as_str(), orders_key.as_str()];
            let written = fenced.script(&compare_and_write, &keys, &arguments).await?;
            if written.as_int() == Some(1) {
                break true;
            }
        };
        guard.release().await?;
        Ok(bought)
    }
}

impl Case for Stock {
    const NAME: &'static str = "stock";

    async fn reset(&self, db: &mut Db) -> Outcome {
        let mut set = redis::pipe();
        set.cmd("SET").arg(self.left()).arg(self.first).ignore();
        set.cmd("DEL").arg(self.orders()).ignore();
        Ok(set.exec_async(db).await?)
    }

    async fn watched(&self, db: &mut Db, turn: Turn) -> Outcome<u64> {
        Ok(self.buy_watched(db, &order(turn)).await?.1)
    }

    async fn locked(&self, locks: &LockClient, turn: Turn) -> Outcome {
        self.buy_locked(locks, &order(turn)).await.map(drop)
    }

    /// How many are left and how many were sold. The buyers differ from run to run.
    async fn state(&self, db: &mut Db) -> Outcome<Vec<String>> {
        let left: u64 = redis::cmd("GET").arg(self.left()).query_async(db).await?;
        let sold: u64 = redis::cmd("LLEN")
            .arg(self.orders())
            .query_async(db)
            .await?;
        Ok(vec![format!("left {left}"), format!("sold {sold}")])
    }
}

fn order(turn: Turn) -> String {
    format!("order {} of buyer {}", turn.number, turn.contender)
}
