//! How a connection to the ensemble is made.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use zookeeper_client::{Client, Connector, Error, SessionInfo};

use crate::config::{Auth, PORT, ZkStoreBuilder};

/// How long it is tried to reach a member of which it is asked why it gives no session.
const DIAL: Duration = Duration::from_secs(1);

/// A connection that is silent for this long is given up: a fifth of the session, but not less than
/// two seconds while that leaves time to find another server.
fn silence(session: Duration) -> Duration {
    (session / 5).max((session * 2 / 5).min(Duration::from_secs(2)))
}

/// The longest that the library is silent towards the server: it looks every eighth of the silence
/// whether three of them have passed, or every twentieth of a session that is much shorter than was wished.
pub(crate) fn most_between_pings(granted: Duration, wished: Duration) -> Duration {
    (silence(wished) / 2).min(granted * 3 / 10)
}

/// Begins a session.
pub(crate) async fn connect(config: &ZkStoreBuilder) -> Result<Client, Error> {
    dial(config, connector(config)?).await
}

/// What becomes of a connection to each member, where none gave a session.
pub(crate) async fn why_not(config: &ZkStoreBuilder) -> String {
    let dials: Vec<_> = members(config)
        .into_iter()
        .map(|member| {
            let address = member.clone();
            let dial = timeout(DIAL, async move { TcpStream::connect(address).await });
            (member, Handle::current().spawn(dial))
        })
        .collect();
    let mut reasons = Vec::with_capacity(dials.len());
    for (member, dial) in dials {
        reasons.push(match dial.await {
            Ok(Ok(Ok(_))) => format!(
                "{member} accepts connections and gives no session: is it a ZooKeeper server, has it a leader, \
                 does it expect TLS?"
            ),
            Ok(Ok(Err(error))) => format!("{member}: {error}"),
            _ => format!("{member}: no connection within {DIAL:?}"),
        });
    }
    reasons.join("; ")
}

/// Takes over a session that somebody else has.
pub(crate) async fn twin(config: &ZkStoreBuilder, session: SessionInfo) -> Result<Client, Error> {
    dial(config, connector(config)?.with_session(session)).await
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
    if let Some(ca) = &config.ca {
        connector = connector.with_tls(crate::tls::options(ca, config)?);
    }
    Ok(connector)
}

/// Their addresses as they are written.
fn members(config: &ZkStoreBuilder) -> Vec<String> {
    let host = |(host, port): &(String, u16)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let mut hosts: Vec<String> = config.hosts.iter().map(host).collect();
    if hosts.is_empty() {
        hosts.push(format!("127.0.0.1:{PORT}"));
    }
    hosts
}

async fn dial(config: &ZkStoreBuilder, connector: Connector) -> Result<Client, Error> {
    let cluster = members(config).join(",");
    #[cfg(feature = "tls")]
    if config.ca.is_some() {
        return Box::pin(connector.secure_connect(&cluster)).await;
    }
    Box::pin(connector.connect(&cluster)).await
}
