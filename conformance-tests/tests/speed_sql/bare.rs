//! A lease row that is polled every millisecond, as it is written by hand.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::Outcome;
use sqlx::{ConnectOptions as _, PgConnection};
use tokio::time::sleep;

use crate::world::{Database as _, Postgres, options};
use conformance_tests::contention::{Contender, HandOffs};

pub(crate) struct Polled {
    connection: PgConnection,
    number: usize,
    me: i64,
    seen: Arc<HandOffs>,
}

impl Polled {
    pub(crate) async fn ready(server: &Postgres) -> Outcome {
        let sql = "create table polled (name bytea primary key, holder bigint, \
                   expires_at timestamptz); insert into polled values ('a', null, now())";
        server.run(sql).await
    }

    pub(crate) async fn connect(port: u16, number: usize, seen: &Arc<HandOffs>) -> Outcome<Self> {
        Ok(Self {
            connection: options(port).connect().await?,
            number,
            me: i64::try_from(number)?,
            seen: Arc::clone(seen),
        })
    }
}

impl Contender for Polled {
    async fn turn(&mut self) -> Outcome {
        let take = "update polled set holder = $1, expires_at = clock_timestamp() + interval '30 s' \
                    where name = 'a' and (holder is null or expires_at <= clock_timestamp())";
        let give = "update polled set holder = null where name = 'a' and holder = $1";
        loop {
            let taken = sqlx::query(take).bind(self.me);
            if taken.execute(&mut self.connection).await?.rows_affected() == 1 {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.seen.note(self.number);
        let given = sqlx::query(give).bind(self.me);
        given.execute(&mut self.connection).await?;
        Ok(())
    }
}
