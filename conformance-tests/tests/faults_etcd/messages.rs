//! Errors of servers that cannot be reached.

use std::time::Duration;

use conformance_tests::servers::{EtcdCluster, free_port};
use conformance_tests::task::within;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{BackendError, DistributedLock as _, Outcome as Effect};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::world::{LONG, SOON, builder, client_of, store};

/// The texts of an error and of its sources.
fn chain(error: &BackendError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

async fn refused(port: u16) -> Outcome {
    let connected = within(SOON, builder(&[port]).connect()).await?;
    let Err(error) = connected else {
        return Err(Failure::new("it is connected"));
    };
    let text = chain(&error);
    ensure(error.outcome() == Effect::Unavailable, text.clone())?;
    ensure(text.contains(&format!("127.0.0.1:{port}")), text.clone())?;
    ensure(!text.contains("carried out"), text)
}

/// A failed connect has no effect, and its error names the server.
pub(crate) async fn connection_error_names_server() -> Outcome {
    // No process listens.
    refused(free_port()?).await?;
    // One server is silent, one closes the connection, and one speaks another protocol.
    for answer in [None, Some(""), Some("-ERR unknown command\r\n")] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let server = conformance_tests::task::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                match answer {
                    None => kept.push(stream),
                    Some(text) => drop(stream.write_all(text.as_bytes()).await),
                }
            }
        });
        refused(port).await?;
        drop(server);
    }
    // One server has gone meanwhile.
    let cluster = EtcdCluster::of(1).await?;
    let store = store(&cluster).await?;
    let client = client_of(&store, LONG)?;
    let lock = client.lock("jobs")?;
    lock.acquire().await?.release().await?;
    cluster.process(0).kill();
    let limit = Duration::from_millis(500);
    let looked = within(SOON, async {
        loop {
            // A request that is under way may be cut off. The next one is refused.
            if let Err(lockkit_core::Error::Backend(error)) = lock.inspect().await
                && chain(&error).contains("refused")
            {
                break error;
            }
            tokio::time::sleep(limit / 10).await;
        }
    })
    .await?;
    let text = chain(&looked);
    let place = format!("127.0.0.1:{}", cluster.ports()[0]);
    ensure(store.address().as_ref() == Some(&place), "another address")?;
    ensure(looked.outcome() == Effect::Unavailable, text.clone())?;
    ensure(text.contains(&place), text)
}
