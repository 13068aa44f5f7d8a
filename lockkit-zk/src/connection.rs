//! Makes connections to the ensemble.

use std::future::pending;
use std::time::Duration;
#[cfg(feature = "tls")]
use std::{fs, path::Path};

use lockkit_core::Outcome;
#[cfg(feature = "tls")]
use lockkit_core::url::Tls;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::select;
use tokio::time::{sleep, timeout};
#[cfg(feature = "tls")]
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
#[cfg(feature = "tls")]
use zookeeper_client::TlsOptions;
use zookeeper_client::{Client, Connector, Error};

use crate::config::{Auth, ZkStoreBuilder};
use crate::error::of_connecting;

/// The longest that dialing a member takes, to learn why it gives no session.
const DIAL: Duration = Duration::from_secs(1);
/// Until then an ensemble that is sound has given a session, and no member needs to be dialed.
const SOUND: Duration = Duration::from_millis(100);

/// A connection that is silent for this long is given up: a fifth of the session, but not less than
/// two seconds while that leaves time to find another server.
fn silence(session: Duration) -> Duration {
    (session / 5).max((session * 2 / 5).min(Duration::from_secs(2)))
}

/// The longest time without a ping of the library: every eighth of the silence it checks whether three
/// eighths have passed, or every twentieth of a session that is much shorter than was requested.
pub(crate) fn most_between_pings(granted: Duration, requested: Duration) -> Duration {
    (silence(requested) / 2).min(granted * 3 / 10)
}

/// Begins a session, or says why it cannot.
pub(crate) async fn connect(config: &ZkStoreBuilder) -> Result<Client, (Outcome, String)> {
    let connecting = async { dial(config, connector(config)?).await };
    // The library tries again until the end of this time, and does not say what became of each member.
    let connected = select! {
        connected = timeout(config.connect_timeout, connecting) => connected,
        reasons = all_unreachable(config) => return Err((Outcome::Unavailable, reasons)),
    };
    match connected {
        Ok(Ok(client)) => Ok(client),
        Err(_) | Ok(Err(Error::NoHosts | Error::Timeout | Error::ConnectionLoss)) => {
            Err((Outcome::Unavailable, dial_all(config).await.0))
        }
        Ok(Err(error)) => Err(of_connecting(&error)),
    }
}

/// Returns the reasons if no member can be reached, as with a wrong port, and never otherwise.
async fn all_unreachable(config: &ZkStoreBuilder) -> String {
    sleep(SOUND).await;
    match dial_all(config).await {
        (reasons, true) => reasons,
        (_, false) => pending().await,
    }
}

/// Dials the members. Returns the reason of each, and whether none can be reached.
async fn dial_all(config: &ZkStoreBuilder) -> (String, bool) {
    let dials = config.hosts.iter().map(|member| {
        let address = member.clone();
        let dial = timeout(DIAL, async move { TcpStream::connect(address).await });
        (member, Handle::current().spawn(dial))
    });
    let (mut reasons, mut unreachable) = (Vec::new(), true);
    for (member, dial) in dials.collect::<Vec<_>>() {
        let dial = dial.await.ok().and_then(Result::ok);
        unreachable &= matches!(dial, Some(Err(_)));
        reasons.push(match dial {
            Some(Ok(_)) => format!(
                "{member} accepts connections and gives no session: is it a ZooKeeper server, has it a \
                 leader, does it expect TLS?"
            ),
            Some(Err(error)) => format!("{member}: {error}"),
            None => format!("{member}: no connection within {DIAL:?}"),
        });
    }
    (reasons.join("; "), unreachable)
}

fn connector(config: &ZkStoreBuilder) -> Result<Connector, Error> {
    let mut connector = Client::connector()
        .with_session_timeout(config.session)
        .with_connection_timeout(silence(config.session));
    if let Some((user, password)) = &config.user {
        connector = match config.auth {
            Auth::Digest => connector.with_auth("digest", format!("{user}:{password}").as_bytes()),
            #[cfg(feature = "sasl")]
            Auth::Sasl => connector.with_sasl(zookeeper_client::SaslOptions::digest_md5(
                user.clone(),
                password.clone(),
            )),
        };
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        connector = connector.with_tls(tls_options(tls)?);
    }
    Ok(connector)
}

/// Reads the files anew for each session, so that certificates can be renewed.
#[cfg(feature = "tls")]
fn tls_options(tls: &Tls) -> Result<TlsOptions, Error> {
    // The library takes the program's provider of cryptography, and panics if there are several and none is installed.
    if CryptoProvider::get_default().is_none() {
        // Another task may have been faster.
        let _ = aws_lc_rs::default_provider().install_default();
    }
    let read = |path: &Path| {
        // The library has no error for files, and this one is no secret.
        fs::read_to_string(path)
            .map_err(|error| Error::UnexpectedError(format!("{}: {error}", path.display())))
    };
    let mut options = TlsOptions::new();
    if let Some(ca) = tls.trusted() {
        options = options.with_pem_ca(&read(ca)?)?;
    }
    match tls.shown() {
        Some((certificate, key)) => options.with_pem_identity(&read(certificate)?, &read(key)?),
        None => Ok(options),
    }
}

async fn dial(config: &ZkStoreBuilder, connector: Connector) -> Result<Client, Error> {
    let cluster = config.hosts.join(",");
    #[cfg(feature = "tls")]
    if config.tls.is_some() {
        return Box::pin(connector.secure_connect(&cluster)).await;
    }
    Box::pin(connector.connect(&cluster)).await
}
