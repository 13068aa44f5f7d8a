//! TLS with certificates that the tests make.

use std::error::Error as _;
use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::{Certificates, ServerCommand, ServerProcess, free_port};
use conformance_tests::task::{acquire, until};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::url::Tls;
use lockkit_core::{Lease, LockClient, Outcome as Effect};
use lockkit_etcd::EtcdStoreBuilder;

use crate::world::{LONG, builder, client_of};

/// A server that speaks TLS alone.
struct Secure {
    _process: ServerProcess,
    port: u16,
}

impl Secure {
    async fn start(certificates: &Certificates, asks_clients: bool) -> Outcome<Self> {
        let (port, peer) = (free_port()?, free_port()?);
        let (client, peer) = (
            format!("https://127.0.0.1:{port}"),
            format!("http://127.0.0.1:{peer}"),
        );
        let path = |file: &str| certificates.path(file).display().to_string();
        let members = format!("m0={peer}");
        let words = [
            ["--name", "m0"],
            ["--data-dir", "data"],
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", &members],
            ["--cert-file", &path("server.crt")],
            ["--key-file", &path("server.key")],
        ];
        let mut command =
            ServerCommand::new(std::env::current_exe()?, "etcd").args(words.into_iter().flatten());
        if asks_clients {
            command = command.args(["--client-cert-auth", "--trusted-ca-file", &path("ca.crt")]);
        }
        let this = Self {
            _process: command.start()?,
            port,
        };
        let trusted = builder(&[port]).tls(Tls::new().ca(certificates.path("ca.crt")).identity(
            certificates.path("client.crt"),
            certificates.path("client.key"),
        ));
        until("the server is ready", async || {
            Ok(trusted.clone().connect().await.is_ok())
        })
        .await?;
        Ok(this)
    }
}

/// The store cannot be opened. Returns why.
async fn refused(store: EtcdStoreBuilder, outcome: Effect) -> Outcome<String> {
    let error = store.connect().await.err();
    let error = error.ok_or_else(|| Failure::new("it was opened"))?;
    ensure(error.outcome() == outcome, format!("{error:?}"))?;
    Ok(error.source().map(ToString::to_string).unwrap_or_default())
}

pub(crate) async fn tls_needs_trusted_server() -> Outcome {
    let certificates = Certificates::make()?;
    let server = Secure::start(&certificates, false).await?;
    let ca = certificates.path("ca.crt");
    let store = builder(&[server.port])
        .tls(Tls::new().ca(&ca))
        .connect()
        .await?;
    let lock = client_of(&store, LONG)?.lock("jobs")?;
    let guard = lock.acquire().await?;
    guard.check()?;
    // The same by its URL.
    let url = format!(
        "etcds://localhost:{}/lockkit?ca={}",
        server.port,
        ca.display()
    );
    let mut url = url.parse()?;
    let other = EtcdStoreBuilder::from_url(&mut url)?.connect().await?;
    let other = LockClient::builder(other)
        .lease(Lease::renewed(LONG))
        .build()?;
    let other = other.lock("jobs")?;
    ensure(other.try_acquire().await?.is_none(), "two hold")?;
    guard.release().await?;
    other.acquire().await?.release().await?;
    let stranger = Tls::new().ca(certificates.path("other.crt"));
    let said = refused(builder(&[server.port]).tls(stranger), Effect::Unavailable).await?;
    ensure(said.contains("certificate"), said)?;
    // Without TLS.
    refused(builder(&[server.port]), Effect::Unavailable).await?;
    Ok(())
}

pub(crate) async fn client_certificate_is_sent() -> Outcome {
    let certificates = Certificates::make()?;
    let server = Secure::start(&certificates, true).await?;
    let (ca, path) = (certificates.path("ca.crt"), |file: &str| {
        certificates.path(file)
    });
    let url = format!(
        "etcds://127.0.0.1:{}?ca={}&cert={}&key={}",
        server.port,
        ca.display(),
        path("client.crt").display(),
        path("client.key").display()
    );
    let mut url = url.parse()?;
    let store = EtcdStoreBuilder::from_url(&mut url)?.connect().await?;
    let lock = client_of(&store, LONG)?.lock("jobs")?;
    let guard = lock.acquire().await?;
    guard.check()?;
    guard.release().await?;
    let of = |ca: &str, cert: &str, key: &str| {
        let shown = Tls::new().ca(path(ca)).identity(path(cert), path(key));
        builder(&[server.port]).tls(shown)
    };
    // The server refuses a client without a certificate, and one of an authority that it does not know.
    let nobody = builder(&[server.port]).tls(Tls::new().ca(&ca));
    refused(nobody, Effect::Unavailable).await?;
    let stranger = of("ca.crt", "stranger.crt", "stranger.key");
    refused(stranger, Effect::Unavailable).await?;
    for (ca, cert, key) in [
        ("no-such.crt", "client.crt", "client.key"),
        ("ca.crt", "no-such.crt", "client.key"),
        ("ca.crt", "client.crt", "no-such.crt"),
    ] {
        let said = refused(of(ca, cert, key), Effect::Rejected).await?;
        ensure(said.contains("no-such.crt: No such file"), said)?;
    }
    // With the same options, and a certificate that it knows.
    of("ca.crt", "client.crt", "client.key").connect().await?;
    Ok(())
}

/// Once a connection was made, a file that cannot be used is one that is being replaced.
pub(crate) async fn waits_while_a_certificate_is_replaced() -> Outcome {
    let certificates = Certificates::make()?;
    let server = Secure::start(&certificates, false).await?;
    let proxy = Proxy::start(([127, 0, 0, 1], server.port).into()).await?;
    let (ca, moved) = (certificates.path("ca.crt"), certificates.path("moved.crt"));
    let store = builder(&[proxy.addr().port()]).tls(Tls::new().ca(&ca));
    let store = store.connect().await?;
    let lock = client_of(&store, LONG)?.lock("jobs")?;
    lock.acquire().await?.release().await?;
    for half_written in [false, true] {
        std::fs::rename(&ca, &moved)?;
        if half_written {
            std::fs::write(&ca, "-----BEGIN CERTIFICATE-----")?;
        }
        proxy.refuse(true);
        proxy.reset();
        let mut waiter = acquire(&lock);
        waiter.waits_for(Duration::from_secs(1)).await?;
        proxy.refuse(false);
        waiter.waits_for(Duration::from_secs(1)).await?;
        std::fs::rename(&moved, &ca)?;
        waiter.soon().await??.release().await?;
    }
    Ok(())
}
