//! The ways to a server: sockets of other kinds, and one that dies in silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkit_core::contract::{Attempt, DistributedLock, Wake};
use lockkit_core::url::StoreUrl;
use lockkit_redis::{Protocol, RedisStoreBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::connection::ticket;
use crate::server::Server;

#[tokio::test]
async fn connects_over_unix_socket_and_new_address() {
    // The path is relative to the server's directory.
    let words = ["--bind", "127.0.0.1", "::1", "--unixsocket", "socket"];
    let server = Server::start(&words).await;
    let socket = server.directory.join("socket");
    for url in [
        format!("redis://[::1]:{}/5", server.port),
        format!("redis+unix://{}?db=5", socket.display()),
    ] {
        let mut parsed: StoreUrl = url.parse().unwrap();
        let builder = RedisStoreBuilder::from_url(&mut parsed).unwrap();
        let store = builder.connect().await.unwrap();
        let ticket = ticket("a");
        let answer = store.attempt(&ticket).await.unwrap();
        assert!(matches!(answer, Attempt::Granted(_)), "{url}: {answer:?}");
        assert_eq!(server.cli(&["-n", "5", "EXISTS", "a"]), "1", "{url}");
        store.release(&ticket).await.unwrap();
    }
}

/// Passes connections on; from a moment on the second one is swallowed, as by a firewall that has
/// forgotten it.
async fn forgetting_the_second(server: u16) -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (forget, forgets) = watch::channel(false);
    let number = Arc::new(AtomicUsize::new(0));
    let tasks = tokio::runtime::Handle::current();
    let runtime = tasks.clone();
    tasks.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let second = number.fetch_add(1, Ordering::Relaxed) == 1;
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let ((from, to), (back, there)) = (client.into_split(), server.into_split());
            for (mut from, mut to) in [(from, there), (back, to)] {
                let forgets = forgets.clone();
                runtime.spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes).await {
                        if second && *forgets.borrow() {
                            continue;
                        }
                        if to.write_all(&bytes[..count]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    (port, forget)
}

#[tokio::test]
async fn notices_silent_message_connection_beside_busy_first() {
    let server = Server::start(&[]).await;
    let (port, forget) = forgetting_the_second(server.port).await;
    let store = lockkit_redis::RedisStore::builder()
        .tcp("127.0.0.1", port)
        .protocol(Protocol::Resp2)
        .response_timeout(Duration::from_millis(400));
    let store = store.connect().await.unwrap();
    let other = server.open().await;
    let (holder, waiter) = (ticket("a"), ticket("a"));
    other.attempt(&holder).await.unwrap();
    store.attempt(&waiter).await.unwrap();
    let mut watch = store.watch(&waiter).await.unwrap();
    while timeout(Duration::from_millis(200), watch.changed())
        .await
        .is_ok()
    {}
    forget.send(true).unwrap();
    // The first connection is busy all the time.
    let busy = store.clone();
    let busy = tokio::runtime::Handle::current().spawn(async move {
        loop {
            let _ = busy.inspect(&ticket("b").name).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let wake = timeout(Duration::from_secs(5), watch.changed()).await;
    assert_eq!(wake.expect("nobody noticed").unwrap(), Wake::Retry);
    other.release(&holder).await.unwrap();
    let wake = timeout(Duration::from_secs(5), watch.changed()).await;
    let wake = wake.expect("nobody told the waiter").unwrap();
    assert!(matches!(wake, Wake::Granted(_)), "{wake:?}");
    busy.abort();
}
