//! A table of an older version, which has neither labels nor a second table.

use conformance_tests::task::within;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Error, FencingToken};

use crate::world::{Database, LONG, Maria, Postgres, SOON, client, only_rows_left};

/// How it was made.
pub(crate) trait Older: Database {
    /// As the table of `app`.
    const TABLE: &'static str;
    /// Gives `app` the rights to change it.
    const MAY_CHANGE: &'static str;
}

impl Older for Postgres {
    const TABLE: &'static str = "create table app.lockkit_locks (name bytea not null primary key, holder text, \
        token bigint not null, expires_at bigint not null, waiting_until bigint not null default 0, \
        session bigint not null default 0, unique (name, token)) with (fillfactor = 50); \
        alter table app.lockkit_locks owner to app";
    const MAY_CHANGE: &'static str = "alter schema app owner to app";
}

impl Older for Maria {
    const TABLE: &'static str = "create table app.lockkit_locks (name varbinary(512) not null primary key, \
        holder varbinary(100), token bigint not null, expires_at bigint not null, \
        waiting_until bigint not null default 0, session bigint not null default 0, \
        unique key lockkit_locks_token (name, token)) engine = innodb";
    const MAY_CHANGE: &'static str = "grant create, alter on app.* to app@'127.0.0.1'";
}

/// Ahead of the clock, so that only a token that was kept is larger.
const TOKEN: u64 = 4_000_000_000_000_000;

/// Users who may not change the table go on with exclusive locks; others get all modes. What is held stays
/// held, and tokens grow.
pub(crate) async fn table_of_an_older_version_keeps_its_holds_and_tokens<D: Older>() -> Outcome {
    let server = D::start().await?;
    let rows = format!(
        "insert into app.lockkit_locks (name, holder, token, expires_at) \
         values ('jobs', null, {TOKEN}, 0), ('held', 'other:1', {TOKEN}, 9000000000000000)"
    );
    for sql in [D::TABLE, &rows, D::NO_TABLES] {
        server.run(sql).await?;
    }
    let mut last = FencingToken::new(TOKEN);
    let old = client(&server, "lease", LONG).await?;
    let guard = within(SOON, old.lock("jobs")?.acquire()).await??;
    ensure(Some(guard.token()) > last, "the token did not grow")?;
    last = Some(guard.token());
    guard.release().await?;
    match old.rw_lock("jobs") {
        Err(Error::Unsupported { .. }) => {}
        other => return Err(Failure::new(format!("{other:?}"))),
    }

    server.run(D::MAY_CHANGE).await?;
    let new = client(&server, "lease", LONG).await?;
    for client in [&old, &new] {
        let none = client.lock("held")?.try_acquire().await?.is_none();
        ensure(none, "two hold at once")?;
    }
    let reads = new.rw_lock("jobs")?.read();
    let (one, other) = (reads.acquire().await?, reads.acquire().await?);
    for guard in [&one, &other] {
        ensure(Some(guard.token()) > last, "the token did not grow")?;
        last = Some(guard.token());
    }
    // A program that runs since before the change.
    let none = old.lock("jobs")?.try_acquire().await?.is_none();
    ensure(none, "a lock of an older version passes readers")?;
    one.release().await?;
    other.release().await?;
    let guard = within(SOON, old.lock("jobs")?.acquire()).await??;
    ensure(Some(guard.token()) > last, "the token did not grow")?;
    guard.release().await?;
    server
        .run("delete from app.lockkit_locks where name = 'held'")
        .await?;
    only_rows_left(&server).await
}
