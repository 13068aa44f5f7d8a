//! Which table it is, and on which server: what could be two is refused.

use std::time::Duration;

use conformance_tests::servers::{MysqlPrograms, MysqlServer};
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Lease, LockClient, PollRange};
use lockkit_sql::{PostgresStore, SqlStoreBuilder};

use crate::world::{Database, LONG, Postgres, SOON, client, only_rows_left};

/// The text of an error with its causes.
pub(crate) fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

async fn refusal(builder: SqlStoreBuilder<lockkit_sql::Postgres>) -> String {
    let opened = builder.connect().await;
    opened.err().map_or_else(String::new, |error| told(&error))
}

/// Roles with other schemas in their paths: no second table is created.
pub(crate) async fn roles_that_share_a_database_share_a_table() -> Outcome {
    let server = Postgres::start().await?;
    let lock = client(&server, "lease", LONG).await?.lock("jobs")?;
    let guard = lock.acquire().await?;
    let roles = "create role two login; create schema two authorization two; \
                 alter role two set search_path = two; grant usage on schema app to two; \
                 grant all on app.lockkit_locks, app.lockkit_locks_holds to two";
    server.run(roles).await?;
    let two = || PostgresStore::builder(server.options().username("two"));
    let said = refusal(two()).await;
    ensure(said.contains("table=app.lockkit_locks"), &said)?;
    let named = two().table("app.lockkit_locks".parse()?).connect().await?;
    let tried = LockClient::new(named)?.lock("jobs")?.try_acquire().await?;
    ensure(tried.is_none(), "two hold at once")?;
    // One of its own is made where it is asked for.
    two().table("two.lockkit_locks".parse()?).connect().await?;
    two().connect().await?;
    server
        .run("alter role two set search_path = two, app")
        .await?;
    let said = refusal(two()).await;
    ensure(said.contains("`app`") && said.contains("`two`"), &said)?;
    guard.release().await?;
    only_rows_left(&server).await
}

/// The server takes 63 letters for the channel on which releases are notified.
pub(crate) async fn table_with_a_long_name_has_wake_ups() -> Outcome {
    let server = Postgres::start().await?;
    let (schema, table) = ("s".repeat(40), "t".repeat(40));
    server
        .run(&format!("create schema {schema} authorization app"))
        .await?;
    let open = async || -> Outcome<_> {
        let builder = server.builder().table(format!("{schema}.{table}").parse()?);
        let store = builder.poll(PollRange::new(LONG, LONG)).connect().await?;
        let client = LockClient::builder(store).lease(Lease::renewed(LONG * 4));
        Ok(client.build()?.lock("jobs")?)
    };
    let (mine, other) = (open().await?, open().await?);
    let guard = mine.acquire().await?;
    let mut waiter = acquire(&other);
    waiter.waits_for(Duration::from_millis(500)).await?;
    guard.release().await?;
    within(SOON, waiter.soon()).await???.release().await?;
    Ok(())
}

/// The error of a missing database names it.
pub(crate) async fn missing_database_is_named<D: Database>() -> Outcome {
    let server = D::start().await?;
    let url = server.url("connect_timeout=5s");
    let url = url.replace("/postgres?", "/nix?").replace("/app?", "/nix?");
    let error = lockkit::connect(&url).await.err();
    let said = error.map_or_else(String::new, |error| told(&error));
    ensure(said.contains("nix"), &said)?;
    ensure(!said.contains("secret"), &said)
}

/// Servers that speak the protocol of MySQL, and lock rows in another way.
pub(crate) async fn server_other_than_mysql_is_refused() -> Outcome {
    for (version, name) in [("8.0.11-TiDB-v7.5.1", "TiDB"), ("8.0.30-Vitess", "Vitess")] {
        let version = format!("--version={version}");
        let server = MysqlServer::start_with(&MysqlPrograms::mariadb(), &[&version], &[]).await?;
        let url = format!("mysql://admin@127.0.0.1:{}/mysql", server.port());
        let error = lockkit::connect(&url).await.err();
        let said = error.map_or_else(String::new, |error| told(&error));
        ensure(said.contains(name), &said)?;
    }
    Ok(())
}
