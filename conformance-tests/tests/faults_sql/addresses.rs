//! Errors that name the server, by which an operator finds it, and never a password.

use std::time::Duration;

use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::task::{soon, until};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit::Error;
use lockkit_core::contract::Ticket;
use lockkit_core::{BackendError, ClientId, HolderId, LockClient, LockName};

use crate::tables::told;
use crate::world::{Database, LONG, WAYS, address, through};

/// Fails unless the error names the server once.
fn names(error: &BackendError, address: &str) -> Outcome {
    let said = told(error);
    let once = said.matches(address).count() == 1;
    ensure(once && !said.contains("secret"), said)
}

/// Fails unless the store of the URL cannot be opened, and the error names the server.
async fn opening_names(url: &str, address: &str) -> Outcome {
    let once = lockkit::builder(url).wait(Duration::ZERO).connect();
    match soon(once).await? {
        Err(Error::Backend(error)) => names(&error, address),
        other => Err(Failure::new(format!("{other:?}"))),
    }
}

/// Sends attempts until some have failed: a connection that is left may carry out others.
async fn attempts_name(client: &LockClient, address: &str) -> Outcome {
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new("jobs")?, holder, LONG);
    let mut failed = 0;
    until("three attempts have failed", async || {
        if let Err(error) = client.backend().attempt(&ticket).await {
            names(&error, address)?;
            failed += 1;
        }
        Ok(failed == 3)
    })
    .await
}

/// The server knows no such user, ends connections, takes no writes, cannot be reached, and is silent.
pub(crate) async fn errors_of_connections_name_the_server<D: Database>() -> Outcome {
    let server = D::start().await?;
    let proxy = Proxy::start(address(&server)).await?;
    let address = proxy.addr().to_string();
    opening_names(
        &through(&server, &proxy, "").replace("//app", "//nobody"),
        &address,
    )
    .await?;
    for way in WAYS {
        let query = format!("connect_timeout=300ms&pin={}", way == "pin");
        let url = through(&server, &proxy, &query);
        let client = soon(lockkit::connect(&url)).await??;
        let lock = client.lock("jobs")?;
        soon(lock.acquire()).await??.release().await?;
        let [forbid, allow] = D::READ_ONLY[0];
        server.run(forbid).await?;
        // Sessions of PostgreSQL that have begun before stay as they were.
        proxy.reset();
        attempts_name(&client, &address).await?;
        server.run(allow).await?;
        soon(lock.acquire()).await??.release().await?;
        proxy.refuse(true);
        proxy.reset();
        attempts_name(&client, &address).await?;
        opening_names(&url, &address).await?;
        proxy.refuse(false);
        proxy.flow(Direction::Reply, Flow::Discard);
        opening_names(&url, &address).await?;
        proxy.heal();
    }
    opening_names(D::NO_SOCKET, "/no/such").await
}
