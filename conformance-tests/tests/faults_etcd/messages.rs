//! What is said of servers that cannot be reached.

use std::time::Duration;

use conformance_tests::servers::{EtcdCluster, free_port};
use conformance_tests::task::within;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{BackendError, Outcome as Effect};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::world::{LONG, SOON, builder, client_of, store};

/// The error and all that it comes from.
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

/// Connecting has no effect, and who fails to is told where.
pub(crate) async fn an_error_of_a_connection_names_the_server() -> Outcome {
    // Nobody listens.
    refused(free_port()?).await?;
    // One that says nothing, one that closes, and one that speaks another language.
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
    // One that has gone meanwhile.
    let cluster = EtcdCluster::of(1).await?;
    let store = store(&cluster).await?;
    let client = client_of(&store, LONG)?;
    let lock = client.lock("jobs")?;
    lock.acquire().await?.release().await?;
    cluster.process(0).kill();
    let limit = Duration::from_millis(500);
    let looked = within(SOON, async {
        loop {
            // What was under way may be cut off; the next request is refused.
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
    ensure(looked.outcome() == Effect::Unavailable, text.clone())?;
    ensure(text.contains(&place), text)
}
