//! What must not be noticed: by the server's log, by strict settings, by an administrator who grants
//! little.

use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::url::StoreUrl;
use lockkit_core::{Lease, Lock, LockClient};
use lockkit_sql::SqlStore;

use crate::section::Section;
use crate::world::{Database, LONG, WAYS, client, only_rows_left};

/// The log has one statement that failed on purpose, and no other, but for these errors.
pub(crate) async fn no_statement_failed<D: Database>(server: &D, but_for: &[&str]) -> Outcome {
    const WRONG: &str = "no_such_column";
    let pool = server.pool(1).await?;
    let mut transaction = pool.begin().await?;
    let failed = D::execute(&mut transaction, format!("select {WRONG}")).await;
    ensure(failed.is_err(), "a wrong statement did not fail")?;
    let mut errors = server.errors().await?;
    errors.retain(|error| !but_for.iter().any(|it| error.contains(it)));
    let told = matches!(&errors[..], [error] if error.contains(WRONG));
    ensure(told, format!("{errors:?}"))
}

/// Eight clients, half of them pinned, on one name and on names that were never used.
pub(crate) async fn contention_causes_no_error_of_the_server<D: Database>() -> Outcome {
    let server = D::start().await?;
    let mut clients = Vec::new();
    for number in 0..8 {
        clients.push(client(&server, WAYS[number % 2], LONG).await?);
    }
    let lock = |name: &str| -> Outcome<Vec<Lock>> {
        let locks = clients.iter().map(|client| client.lock(name));
        Ok(locks.collect::<Result<_, _>>()?)
    };
    Section::default().share(&lock("jobs")?, 10).await?;
    for number in 0..20 {
        let fresh = lock(&format!("fresh/{number}"))?;
        Section::default().share(&fresh, 1).await?;
    }
    no_statement_failed(&server, &[]).await?;
    only_rows_left(&server).await
}

/// A database where every transaction is serializable by default.
pub(crate) async fn works_under_strict_isolation<D: Database>() -> Outcome {
    let server = D::start().await?;
    server.set(&D::STRICT).await?;
    let mut of = Vec::new();
    for number in 0..6 {
        let client = if number % 3 == 0 {
            let pool = server.pool(4).await?;
            let store = SqlStore::<D::Dialect>::builder(pool).connect().await?;
            LockClient::builder(store)
                .lease(Lease::renewed(LONG))
                .build()?
        } else {
            client(&server, WAYS[number % 2], LONG).await?
        };
        of.push(client.lock("jobs")?);
    }
    Section::default().share(&of, 10).await?;
    only_rows_left(&server).await
}

/// Another user has created the table, and the user has only the rights that the documents name.
pub(crate) async fn documented_rights_are_enough<D: Database>() -> Outcome {
    let server = D::start().await?;
    let url = server.url("schema=check");
    let missing = lockkit::connect(&url).await;
    let message = missing
        .err()
        .map(|error| format!("{error:?}"))
        .unwrap_or_default();
    ensure(message.contains("lockkit schema"), message)?;
    // Made by the user who owns the schema.
    client(&server, "lease", LONG).await?;
    let parsed: StoreUrl = url.parse()?;
    ensure(
        lockkit_sql::ddl(&parsed)?.contains("CREATE TABLE"),
        "no table",
    )?;
    server.run(D::RIGHTS).await?;
    for pin in ["false", "true"] {
        let url = server
            .url(&format!("schema=check&pin={pin}"))
            .replace("app@", "poor@");
        let url = url.replace("//app:", "//poor:");
        let client = lockkit::connect(&url).await?;
        let lock = client.lock(format!("jobs/{pin}"))?;
        let guard = lock.acquire().await?;
        let state = lock.inspect().await?;
        state.ok_or_else(|| Failure::new("the hold is not shown"))?;
        guard.release().await?;
        let guard = lock.acquire().await?;
        lock.break_lock().await?;
        conformance_tests::task::soon(guard.lost()).await?;
        client.list("jobs").await?;
    }
    only_rows_left(&server).await
}
