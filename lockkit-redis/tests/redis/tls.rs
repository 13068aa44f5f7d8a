//! TLS with a certificate of our own making.

use std::path::Path;
use std::process::{Command, Stdio};

use lockkit_core::contract::{Attempt, DistributedLock};
use lockkit_core::url::{StoreUrl, Tls};
use lockkit_core::{BackendError, Outcome};
use lockkit_redis::{RedisStore, RedisStoreBuilder};

use crate::connection::{ticket, why};
use crate::server::{Server, free_port};

fn openssl(directory: &Path, words: &str) {
    let done = Command::new("openssl")
        .args(words.split(' '))
        .current_dir(directory)
        .stderr(Stdio::null())
        .status()
        .expect("this test needs `openssl`");
    assert!(done.success(), "{words}");
}

/// A server that speaks TLS, with certificates in its directory.
struct Secure {
    server: Server,
    port: u16,
}

impl Secure {
    async fn start() -> Self {
        let server = Server::start(&[]).await;
        certificates(&server.directory);
        let port = free_port();
        let this = Self { server, port };
        this.ask_for_certificates(false);
        let (certificate, key, ca) = (
            this.path("server.crt"),
            this.path("server.key"),
            this.path("ca.crt"),
        );
        let port = port.to_string();
        let files = [
            "CONFIG",
            "SET",
            "tls-cert-file",
            &certificate,
            "tls-key-file",
            &key,
            "tls-ca-cert-file",
            &ca,
            "tls-port",
            &port,
        ];
        assert_eq!(this.server.cli(&files), "OK");
        this
    }

    fn path(&self, file: &str) -> String {
        self.server.directory.join(file).display().to_string()
    }

    /// Whether clients must show who they are.
    fn ask_for_certificates(&self, asks: bool) {
        let asks = if asks { "yes" } else { "no" };
        let words = ["CONFIG", "SET", "tls-auth-clients", asks];
        assert_eq!(self.server.cli(&words), "OK");
    }

    async fn connect(&self, host: &str, options: &str) -> Result<RedisStore, BackendError> {
        let url = format!("rediss://{host}:{}/0?{options}", self.port);
        let mut url: StoreUrl = url.parse().unwrap();
        RedisStoreBuilder::from_url(&mut url)
            .unwrap()
            .connect()
            .await
    }
}

fn certificates(directory: &Path) {
    openssl(
        directory,
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca",
    );
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    std::fs::write(directory.join("names"), names).unwrap();
    for who in ["server", "client"] {
        let request = "req -newkey rsa:2048 -nodes -keyout WHO.key -out WHO.csr -subj /CN=WHO";
        openssl(directory, &request.replace("WHO", who));
        let sign = "x509 -req -in WHO.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out WHO.crt -days 2 \
                    -extfile names";
        openssl(directory, &sign.replace("WHO", who));
    }
}

#[tokio::test]
async fn needs_a_trusted_certificate() {
    let secure = Secure::start().await;
    for host in ["localhost", "127.0.0.1"] {
        let ca = format!("ca={}", secure.path("ca.crt"));
        let store = secure.connect(host, &ca).await.unwrap();
        let ticket = ticket("a");
        let answer = store.attempt(&ticket).await.unwrap();
        assert!(matches!(answer, Attempt::Granted(_)), "{answer:?}");
        store.release(&ticket).await.unwrap();
    }
    let strange = RedisStore::builder().tcp("localhost", secure.port);
    let error = strange.clone().tls(Tls::new()).connect().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected, "nobody vouches for it");
    let error = strange.connect().await.unwrap_err();
    assert_ne!(error.outcome(), Outcome::Indeterminate, "without TLS");
}

#[tokio::test]
async fn shows_client_certificate_to_server() {
    let secure = Secure::start().await;
    secure.ask_for_certificates(true);
    let anonymous = format!("ca={}", secure.path("ca.crt"));
    let (certificate, key) = (secure.path("client.crt"), secure.path("client.key"));
    let known = format!("{anonymous}&cert={certificate}&key={key}");
    for (options, enters) in [(anonymous, false), (known, true)] {
        for protocol in ["resp2", "resp3"] {
            let options = format!("{options}&protocol={protocol}");
            let store = secure.connect("localhost", &options).await;
            assert_eq!(store.is_ok(), enters, "{protocol}: {store:?}");
        }
    }
}

#[tokio::test]
async fn names_unusable_certificate_files() {
    let secure = Secure::start().await;
    let ca = secure.path("ca.crt");
    for files in [
        "ca=/nowhere.pem".to_owned(),
        format!("ca={}", secure.path("names")),
        format!("ca={ca}&cert={ca}&key={ca}"),
    ] {
        let error = secure.connect("localhost", &files).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected, "{files}: {error:?}");
        let why = why(&error);
        assert!(why.contains("` cannot be used: "), "{files}: {why}");
    }
}
