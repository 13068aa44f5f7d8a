//! TLS with a certificate of our own making.

use std::path::Path;
use std::process::{Command, Stdio};

use lockkit_core::backend::{Attempt, DistributedLock};
use lockkit_core::{Outcome, url::StoreUrl};
use lockkit_redis::{RedisStore, RedisStoreBuilder};

use crate::connection::ticket;
use crate::server::Server;

fn openssl(directory: &Path, words: &str) {
    let done = Command::new("openssl")
        .args(words.split(' '))
        .current_dir(directory)
        .stderr(Stdio::null())
        .status()
        .expect("this test needs `openssl`");
    assert!(done.success(), "{words}");
}

fn certificates(directory: &Path) {
    openssl(
        directory,
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca",
    );
    openssl(
        directory,
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
    );
    std::fs::write(
        directory.join("names"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
    )
    .unwrap();
    openssl(
        directory,
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names",
    );
}

#[tokio::test]
async fn a_certificate_that_is_trusted_is_needed() {
    let server = Server::start(&[]).await;
    certificates(&server.directory);
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let path = |file: &str| server.directory.join(file).display().to_string();
    let set = |option: &str, value: &str| {
        assert_eq!(
            server.cli(&["CONFIG", "SET", option, value]),
            "OK",
            "{option}"
        );
    };
    set("tls-auth-clients", "no");
    assert_eq!(
        server.cli(&[
            "CONFIG",
            "SET",
            "tls-cert-file",
            &path("server.crt"),
            "tls-key-file",
            &path("server.key"),
            "tls-ca-cert-file",
            &path("ca.crt"),
            "tls-port",
            &port.to_string(),
        ]),
        "OK"
    );
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("rediss://{host}:{port}/0?ca={}", path("ca.crt"));
        let mut url: StoreUrl = url.parse().unwrap();
        let store = RedisStoreBuilder::from_url(&mut url)
            .unwrap()
            .connect()
            .await
            .unwrap();
        let ticket = ticket("a");
        let answer = store.attempt(&ticket).await.unwrap();
        assert!(matches!(answer, Attempt::Granted(_)), "{answer:?}");
        store.release(&ticket).await.unwrap();
    }
    // A server that wants to know its clients.
    set("tls-auth-clients", "yes");
    openssl(
        &server.directory,
        "req -newkey rsa:2048 -nodes -keyout client.key -out client.csr -subj /CN=client",
    );
    openssl(
        &server.directory,
        "x509 -req -in client.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out client.crt -days 2 -extfile names",
    );
    let anonymous = format!("rediss://localhost:{port}/0?ca={}", path("ca.crt"));
    let known = format!(
        "{anonymous}&cert={}&key={}",
        path("client.crt"),
        path("client.key")
    );
    for (url, enters) in [(anonymous, false), (known, true)] {
        for protocol in ["resp2", "resp3"] {
            let mut url: StoreUrl = format!("{url}&protocol={protocol}").parse().unwrap();
            let store = RedisStoreBuilder::from_url(&mut url)
                .unwrap()
                .connect()
                .await;
            assert_eq!(store.is_ok(), enters, "{protocol}: {store:?}");
        }
    }
    set("tls-auth-clients", "no");
    for files in [
        "ca=/nowhere.pem".to_owned(),
        format!("ca={}", path("names")),
        format!("ca={0}&cert={0}&key={0}", path("ca.crt")),
    ] {
        let url = format!("rediss://localhost:{port}/0?{files}");
        let mut url: StoreUrl = url.parse().unwrap();
        let builder = RedisStoreBuilder::from_url(&mut url).unwrap();
        let error = builder.connect().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected, "{files}: {error:?}");
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("` cannot be used: "), "{files}: {why}");
    }
    let strange = RedisStore::builder().tcp("localhost", port);
    let error = strange.clone().tls(None).connect().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected, "nobody vouches for it");
    let error = strange.connect().await.unwrap_err();
    assert_ne!(error.outcome(), Outcome::Indeterminate, "without TLS");
}
