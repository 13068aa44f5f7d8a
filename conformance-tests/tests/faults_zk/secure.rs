//! TLS with certificates that the tests make, and SASL.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::servers::{Certificates, ZkCommand, ZkServer, free_port};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::Outcome as Effect;
use lockkit_core::url::Tls;
use lockkit_zk::Auth;
use tempfile::TempDir;

use crate::world::{Plot, client};

/// Of a machine that starts several servers at once.
const SLOW: Duration = Duration::from_secs(30);

pub(crate) async fn tls_needs_a_trusted_certificate() -> Outcome {
    let certificates = Certificates::make()?;
    let path = |file: &str| certificates.path(file).display().to_string();
    let secure = free_port()?;
    let netty = "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory";
    // The system's package of the server does not name all the parts of Netty that it needs for TLS.
    let command = ["codec", "resolver", "transport-native-unix-common"]
        .iter()
        .fold(ZkCommand::system(), |command, part| {
            command.jar(&format!("/usr/share/java/netty-{part}.jar"))
        })
        .option(netty)
        .line(format!("secureClientPort={secure}"))
        .line(format!("ssl.keyStore.location={}", path("server.p12")))
        .line(format!("ssl.keyStore.password={}", Certificates::PASSWORD))
        .line("ssl.clientAuth=none");
    let server = ZkServer::start(&command).await?;
    let plot = Plot::on(&server).await?;
    // The first handshake of a server loads what it needs for it.
    let patient = plot.builder_at(secure).connect_timeout(SLOW);
    let lock = client(patient.tls(Tls::new().ca(path("ca.crt"))))
        .await?
        .lock("jobs")?;
    let guard = lock.acquire().await?;
    // The same lock without TLS.
    let plain = plot.lock().await?;
    ensure(plain.try_acquire().await?.is_none(), "two hold")?;
    guard.release().await?;
    plain.acquire().await?.release().await?;
    let trusting = |ca: &str| plot.builder_at(secure).tls(Tls::new().ca(path(ca)));
    trusting("ca.crt").connect().await?;
    let stranger = trusting("other.crt").connect().await.err();
    let error = stranger.ok_or_else(|| Failure::new("a certificate of an unknown authority"))?;
    let said = error.source().map(ToString::to_string).unwrap_or_default();
    // The client library does not say why.
    let named = error.outcome() == Effect::Unavailable && said.contains("does it expect TLS?");
    ensure(named, format!("{error:?}"))
}

pub(crate) async fn sasl_users_own_their_nodes() -> Outcome {
    let directory = TempDir::new()?;
    let file = directory.path().join("jaas.conf");
    std::fs::write(
        &file,
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required \
         user_app=\"s3cret\" user_other=\"0ther\"; };",
    )?;
    let command = ZkCommand::system()
        .option(format!("-Djava.security.auth.login.config={}", file.display()))
        .option("-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider");
    let server = Arc::new(ZkServer::start(&command).await?);
    let plot = Plot::on(&server).await?;
    let of = |user: &str, password: &str| plot.builder().user(Auth::Sasl, user, password);
    let (a, b) = (
        client(of("app", "s3cret")).await?,
        client(of("app", "s3cret")).await?,
    );
    let guard = a.lock("jobs")?.acquire().await?;
    ensure(b.lock("jobs")?.try_acquire().await?.is_none(), "two hold")?;
    let other = client(of("other", "0ther")).await?;
    let refused = other.lock("jobs")?.try_acquire().await;
    ensure(refused.is_err(), format!("{refused:?}"))?;
    guard.release().await?;
    b.lock("jobs")?.acquire().await?.release().await?;
    let wrong = of("app", "wrong").connect().await;
    let outcome = wrong.err().map(|error| error.outcome());
    ensure(
        matches!(outcome, Some(Effect::Rejected | Effect::Unavailable)),
        format!("{outcome:?}"),
    )
}
