//! How a connection to the ensemble is made.

use std::time::Duration;

use zookeeper_client::{Client, Connector, Error, SessionInfo};

use crate::config::{Auth, PORT, ZkStoreBuilder};

/// A connection that is silent for this long is given up: a fifth of the session, but not less than
/// two seconds while that leaves time to find another server.
fn silence(session: Duration) -> Duration {
    (session / 5).max((session * 2 / 5).min(Duration::from_secs(2)))
}

/// Begins a session.
pub(crate) async fn connect(config: &ZkStoreBuilder) -> Result<Client, Error> {
    dial(config, connector(config)?).await
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

async fn dial(config: &ZkStoreBuilder, connector: Connector) -> Result<Client, Error> {
    let host = |(host, port): &(String, u16)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let mut hosts: Vec<String> = config.hosts.iter().map(host).collect();
    if hosts.is_empty() {
        hosts.push(format!("127.0.0.1:{PORT}"));
    }
    let cluster = hosts.join(",");
    #[cfg(feature = "tls")]
    if config.ca.is_some() {
        return Box::pin(connector.secure_connect(&cluster)).await;
    }
    Box::pin(connector.connect(&cluster)).await
}
