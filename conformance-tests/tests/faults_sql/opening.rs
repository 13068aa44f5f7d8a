//! Opening a store whose server accepts the connection and then sends no reply.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::proxy::{Direction, Dropped, Flow, Proxy};
use conformance_tests::task::{soon, spawn, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit::Error;
use lockkit_core::Outcome as Told;

use crate::tables::told;
use crate::world::{Database, Maria, Postgres, SOON, WAYS, address, builder, through};

/// Shorter than the default, and long enough for a busy machine.
const LIMIT: &str = "connect_timeout=1s";

/// Opens the store once. Returns the text of the error, which is one that a repetition may avoid.
async fn failure(url: &str) -> Outcome<Option<String>> {
    let once = lockkit::builder(url).wait(Duration::ZERO).connect();
    match within(SOON, once).await? {
        Ok(_) => Ok(None),
        Err(Error::Backend(error)) if error.outcome() != Told::Rejected => Ok(Some(told(&error))),
        Err(other) => Err(Failure::new(format!("{other:?}"))),
    }
}

/// The reply to one request gets lost, whichever it is.
pub(crate) async fn server_that_falls_silent_ends_the_opening<D: Database>() -> Outcome {
    let server = D::start().await?;
    builder(&server, "lease").connect().await?;
    let proxy = Proxy::start(address(&server)).await?;
    let address = proxy.addr().to_string();
    for way in WAYS {
        let url = through(&server, &proxy, &format!("{LIMIT}&pin={}", way == "pin"));
        let lose = |mut passed: u32| {
            proxy.drop_reply(Dropped::Silence, move |request| {
                let wanted = request.windows(8).any(|word| word == b"lockkit_");
                passed = passed.saturating_sub(u32::from(wanted));
                wanted && passed == 0
            });
        };
        let mut failed = 0;
        loop {
            lose(failed + 1);
            let Some(said) = failure(&url).await? else {
                break;
            };
            failed += 1;
            ensure(said.contains(&address) && !said.contains("secret"), &said)?;
        }
        ensure(failed >= 2, format!("{failed} requests failed with {way}"))?;
        // With a wait it is tried again.
        lose(1);
        soon(lockkit::connect(&url)).await??;
        proxy.heal();
    }
    Ok(())
}

/// With the time limits that are the defaults, the store gives up before its client does, who then knows that nothing was
/// requested.
pub(crate) async fn connection_without_an_answer_requests_nothing<D: Database>() -> Outcome {
    let server = D::start().await?;
    let proxy = Proxy::start(address(&server)).await?;
    for way in WAYS {
        let url = through(&server, &proxy, &format!("pin={}", way == "pin"));
        let client = soon(lockkit::connect(&url)).await??;
        let lock = client.lock("jobs")?;
        soon(lock.acquire()).await??.release().await?;
        proxy.flow(Direction::Reply, Flow::Discard);
        proxy.reset();
        // The first ones may be sent on connections that are lost.
        let mut told = Vec::new();
        for _ in 0..4 {
            match within(SOON, lock.try_acquire()).await? {
                Err(Error::Backend(error)) => told.push(error.outcome()),
                other => return Err(Failure::new(format!("{way}: {other:?}"))),
            }
        }
        ensure(
            told.ends_with(&[Told::Unavailable; 2]),
            format!("{way}: {told:?}"),
        )?;
        proxy.heal();
    }
    Ok(())
}

async fn locked_table_ends_the_opening<D: Database>(lock: &str) -> Outcome {
    let server = Arc::new(D::start().await?);
    builder(&*server, "lease").connect().await?;
    let (url, address) = (server.url(LIMIT), format!("127.0.0.1:{}", server.port()));
    let locked = spawn({
        let (server, lock) = (Arc::clone(&server), lock.to_owned());
        async move { server.run(&lock).await }
    });
    let mut said = String::new();
    // The other session gets the lock soon.
    until("the opening has failed", async || {
        said = failure(&url).await?.unwrap_or_default();
        Ok(!said.is_empty())
    })
    .await?;
    ensure(said.contains(&address) && said.contains("locked"), &said)?;
    ensure(!said.contains("secret"), &said)?;
    // With a wait it is tried again until the lock ends.
    let client = soon(lockkit::connect(&url)).await??;
    ensure(
        client.backend().address() == Some(address),
        "another address",
    )?;
    locked.soon().await?
}

pub(crate) async fn table_locked_by_a_migration_of_postgres_ends_the_opening() -> Outcome {
    let lock = "begin; lock table app.lockkit_locks, app.lockkit_locks_holds in access exclusive mode; \
                select pg_sleep(4); commit";
    locked_table_ends_the_opening::<Postgres>(lock).await
}

pub(crate) async fn table_locked_by_a_migration_of_mariadb_ends_the_opening() -> Outcome {
    let lock = "lock tables app.lockkit_locks write, app.lockkit_locks_holds write; \
                select sleep(4); unlock tables";
    locked_table_ends_the_opening::<Maria>(lock).await
}
