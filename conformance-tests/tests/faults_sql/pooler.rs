//! A pooler between a store and its server.

use conformance_tests::servers::{PgBouncer, PostgresPrograms, PostgresServer};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{LockClient, Outcome as Told};
use lockkit_sql::{Postgres, PostgresStore, SqlStoreBuilder, Wake};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

pub(crate) fn missing() -> Option<String> {
    PostgresPrograms::system()
        .missing()
        .or_else(PgBouncer::missing)
}

fn options(port: u16) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .ssl_mode(PgSslMode::Disable)
        .extra_float_digits(None)
        .username("postgres")
        .database("postgres")
}

/// Takes and releases a lock on every connection that a store has. Returns for each session of the server
/// whether the statement was prepared there.
async fn prepared(
    server: &PostgresServer,
    store: SqlStoreBuilder<Postgres>,
) -> Outcome<Vec<String>> {
    let client = LockClient::new(store.connect().await?)?;
    for turn in 0..3 {
        let (first, second) = (client.lock("first")?, client.lock(format!("{turn}"))?);
        let (first, second) = tokio::join!(first.acquire(), second.acquire());
        first?.release().await?;
        second?.release().await?;
    }
    let sql = "SELECT (query LIKE '%$1%')::text FROM pg_stat_activity \
               WHERE query LIKE 'WITH mine AS%lockkit_locks%'";
    let prepared = server.ask(sql).await?;
    client.drain().await;
    if prepared.is_empty() {
        return Err(Failure::new("no session has executed a step"));
    }
    Ok(prepared)
}

pub(crate) async fn polling_or_unprepared_stores_prepare_nothing() -> Outcome {
    let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
    let pooler = PgBouncer::start(server.port(), std::iter::empty()).await?;
    let pooled = || PostgresStore::builder(options(pooler.addr().port()));
    let direct = PostgresStore::builder(options(server.port()));
    for (store, expected) in [
        (direct, "true"),
        (pooled().wake(Wake::Poll), "false"),
        (pooled().prepare(false).wake(Wake::Poll), "false"),
    ] {
        let prepared = prepared(&server, store).await?;
        ensure(
            prepared.iter().all(|said| said == expected),
            format!("prepared: {prepared:?}"),
        )?;
    }
    Ok(())
}

/// In transaction mode a session of the server belongs to no client.
pub(crate) async fn session_behind_a_pooler_needs_session_mode() -> Outcome {
    let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
    for (mode, works) in [("transaction", false), ("session", true)] {
        let settings = format!("pool_mode = {mode}\n");
        let pooler = PgBouncer::start_with(server.port(), std::iter::empty(), &settings).await?;
        let options = options(pooler.addr().port());
        let opened = PostgresStore::builder(options).pin(true).connect().await;
        match opened {
            Ok(store) if works => {
                let guard = LockClient::new(store)?.lock("jobs")?.acquire().await?;
                guard.release().await?;
            }
            Err(error) if !works => {
                let told =
                    error.outcome() == Told::Rejected && format!("{error:?}").contains("pooler");
                ensure(told, format!("{mode}: {error:?}"))?;
            }
            other => return Err(Failure::new(format!("{mode}: {other:?}"))),
        }
    }
    Ok(())
}
