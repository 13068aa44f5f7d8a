//! What stands between a store and its server: found out, and never trusted with a statement that
//! another session might know by the same name.

use conformance_tests::servers::{PgBouncer, PostgresPrograms, PostgresServer};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::LockClient;
use lockkit_sql::{PostgresStore, Wake};
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

/// Takes and releases a lock on every connection that a store has, and answers how the server was
/// asked: for each of its sessions whether values travelled apart from the statement.
async fn asked(server: &PostgresServer, port: u16) -> Outcome<Vec<String>> {
    let store = PostgresStore::builder(options(port)).wake(Wake::Poll);
    let client = LockClient::new(store.connect().await?)?;
    for turn in 0..3 {
        let (first, second) = (client.lock("first")?, client.lock(format!("{turn}"))?);
        let (first, second) = tokio::join!(first.acquire(), second.acquire());
        first?.release().await?;
        second?.release().await?;
    }
    let sql = "SELECT (query LIKE '%$1%')::text FROM pg_stat_activity \
               WHERE query LIKE 'UPDATE%lockkit_locks%'";
    let asked = server.ask(sql).await?;
    client.drain().await;
    if asked.is_empty() {
        return Err(Failure::new("no session has carried out a step"));
    }
    Ok(asked)
}

pub(crate) async fn only_sessions_of_the_server_itself_keep_statements() -> Outcome {
    let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
    let direct = asked(&server, server.port()).await?;
    ensure(
        direct.iter().all(|kept| kept == "true"),
        format!("direct: {direct:?}"),
    )?;
    // One refuses the mark, the other takes it and tells nobody.
    for settings in ["", "ignore_startup_parameters = options\n"] {
        let pooler = PgBouncer::start_with(server.port(), std::iter::empty(), settings).await?;
        let pooled = asked(&server, pooler.addr().port()).await?;
        ensure(
            pooled.iter().all(|kept| kept == "false"),
            format!("behind a pooler with `{settings}`: {pooled:?}"),
        )?;
    }
    Ok(())
}
