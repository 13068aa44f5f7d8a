//! TLS with certificates of our own making, and SASL.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use conformance_tests::servers::{ZkCommand, ZkServer, free_port};
use conformance_tests::{Outcome, ensure};
use lockkit_core::Outcome as Effect;
use lockkit_zk::Auth;
use tempfile::TempDir;

use crate::world::{Plot, client};

fn openssl(directory: &Path, words: &str) -> Outcome {
    let done = Command::new("openssl")
        .args(words.split(' '))
        .current_dir(directory)
        .stderr(Stdio::null())
        .status()?;
    ensure(done.success(), words)
}

fn certificates(directory: &Path) -> Outcome {
    std::fs::write(
        directory.join("names"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
    )?;
    for authority in ["ca", "other"] {
        openssl(
            directory,
            &format!(
                "req -x509 -newkey rsa:2048 -nodes -keyout {authority}.key -out {authority}.crt -days 2 -subj /CN={authority}"
            ),
        )?;
    }
    openssl(
        directory,
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
    )?;
    openssl(
        directory,
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names",
    )?;
    openssl(
        directory,
        "pkcs12 -export -in server.crt -inkey server.key -out server.p12 -passout pass:changeit",
    )
}

pub(crate) async fn tls_needs_a_certificate_that_is_trusted() -> Outcome {
    let directory = TempDir::new()?;
    certificates(directory.path())?;
    let path = |file: &str| directory.path().join(file).display().to_string();
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
        .line("ssl.keyStore.password=changeit")
        .line("ssl.clientAuth=none");
    let server = ZkServer::start(&command).await?;
    let plot = Plot::on(&server).await?;
    let lock = client(plot.builder_at(secure).tls(path("ca.crt")))
        .await?
        .lock("jobs")?;
    let guard = lock.acquire().await?;
    // The same lock without TLS.
    let plain = plot.lock().await?;
    ensure(plain.try_acquire().await?.is_none(), "two hold")?;
    guard.release().await?;
    plain.acquire().await?.release().await?;
    let stranger = plot
        .builder_at(secure)
        .tls(path("other.crt"))
        .connect()
        .await;
    ensure(stranger.is_err(), "a certificate that nobody vouches for")
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
