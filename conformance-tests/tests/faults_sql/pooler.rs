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

/// Whether the last step of each session was prepared: one alone by the driver, one of a reader by its name, at its first
/// use there or before.
const ALONE: &str = "SELECT (query LIKE '%$1%')::text FROM pg_stat_activity \
                     WHERE query LIKE 'WITH mine AS%lockkit_locks%'";
const READER: &str = "SELECT (query ~ '(PREPARE|EXECUTE) lockkit_')::text FROM pg_stat_activity \
                      WHERE pid <> pg_backend_pid() \
                      AND query ~ '(PREPARE|EXECUTE) lockkit_|lockkit_locks_holds'";

/// Takes and releases locks on every connection that a store has. Returns what `sql` says of the sessions.
async fn prepared(
    server: &PostgresServer,
    store: SqlStoreBuilder<Postgres>,
    sql: &str,
) -> Outcome<Vec<String>> {
    let client = LockClient::new(store.connect().await?)?;
    for turn in 0..3 {
        let lock = |name: String| match sql == ALONE {
            true => client.lock(name),
            false => client.rw_lock(name).map(|lock| lock.read()),
        };
        let (first, second) = (lock("first".to_owned())?, lock(turn.to_string())?);
        let (first, second) = tokio::join!(first.acquire(), second.acquire());
        first?.release().await?;
        second?.release().await?;
    }
    let prepared = server.ask(sql).await?;
    client.drain().await;
    if prepared.is_empty() {
        return Err(Failure::new("no session has executed a step"));
    }
    Ok(prepared)
}

pub(crate) async fn polling_or_unprepared_stores_prepare_nothing() -> Outcome {
    for sql in [ALONE, READER] {
        let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
        let pooler = PgBouncer::start(server.port(), std::iter::empty()).await?;
        let pooled = || PostgresStore::builder(options(pooler.addr().port()));
        let direct = PostgresStore::builder(options(server.port()));
        for (store, expected) in [
            (direct, "true"),
            (pooled().wake(Wake::Poll), "false"),
            (pooled().prepare(false).wake(Wake::Poll), "false"),
        ] {
            let prepared = prepared(&server, store, sql).await?;
            ensure(
                prepared.iter().all(|said| said == expected),
                format!("prepared: {prepared:?}"),
            )?;
        }
    }
    Ok(())
}

/// The sessions of the server forget what they have prepared after each transaction.
pub(crate) async fn store_works_whose_statements_are_forgotten() -> Outcome {
    let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
    let settings = "pool_mode = transaction\nserver_reset_query = DEALLOCATE ALL\n\
                    server_reset_query_always = 1\n";
    let pooler = PgBouncer::start_with(server.port(), std::iter::empty(), settings).await?;
    for shared in [true, false] {
        let store = PostgresStore::builder(options(pooler.addr().port()));
        let client = LockClient::new(store.connect().await?)?;
        let lock = match shared {
            true => client.rw_lock("jobs")?.read(),
            false => client.lock("jobs")?,
        };
        for _ in 0..3 {
            lock.acquire().await?.release().await?;
        }
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
