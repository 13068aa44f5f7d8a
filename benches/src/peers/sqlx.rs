//! `PgAdvisoryLock`, with a connection for each contender.

use async_trait::async_trait;
use lockkit::url::StoreUrl;
use sqlx::Connection;
use sqlx::postgres::{PgAdvisoryLock, PgConnection};

use crate::bare::{Contender, postgres_options};
use crate::failure::Outcome;
use crate::turns::Taken;

pub(super) struct Turn {
    lock: PgAdvisoryLock,
    connection: PgConnection,
}

impl Turn {
    pub(super) async fn new(url: &StoreUrl, name: &str) -> Outcome<Self> {
        Ok(Self {
            lock: PgAdvisoryLock::new(name),
            connection: PgConnection::connect_with(&postgres_options(url)?).await?,
        })
    }
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        let guard = self.lock.acquire(&mut self.connection).await?;
        taken.now();
        guard.release_now().await?;
        Ok(())
    }
}
