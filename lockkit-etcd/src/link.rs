//! The connections to the servers of the cluster.
//!
//! The client library spreads requests over all servers, dead ones too. So here all requests go to one
//! server until it fails, by a client for it alone. A request that was never sent goes to the
//! next server at once. A request that may have been executed is an error, which the caller may repeat.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error, Txn, TxnResponse};
use lockkit_core::Outcome;
use lockkit_core::store::lock;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tonic::transport::Endpoint;

use crate::config::{EtcdStoreBuilder, PORT};
use crate::error::{Failed, Verdict, fault, judge, text};

/// The interval of pings on silent connections. Keep-alives of sessions are usually more frequent.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(2);
/// The shortest and the longest pause after a stream or a read that failed.
pub(crate) const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

pub(crate) struct Link {
    config: EtcdStoreBuilder,
    /// That of all connections, also of one that a caller on another runtime needs first.
    runtime: Handle,
    state: Mutex<State>,
    /// Grows whenever a connection is given up. Its streams must be opened again.
    epoch: watch::Sender<u64>,
}

struct State {
    /// The connection to the server in use, made when it is needed.
    opened: Option<Opened>,
    /// The server in use.
    current: usize,
    /// Whether a connection was made before, so that its files could be used.
    connected: bool,
}

/// A connection to one server.
#[derive(Clone)]
struct Opened {
    client: Arc<Client>,
    server: usize,
    /// When it was made, or answered last.
    answered: Arc<Mutex<Instant>>,
}

impl Link {
    pub(crate) fn new(mut config: EtcdStoreBuilder, runtime: Handle) -> Self {
        if config.endpoints.is_empty() {
            config = config.endpoint("127.0.0.1", PORT);
        }
        let state = State {
            opened: None,
            current: 0,
            connected: false,
        };
        Self {
            config,
            runtime,
            state: Mutex::new(state),
            epoch: watch::Sender::new(0),
        }
    }

    /// The time without an answer after which another server is asked.
    pub(crate) const fn request_timeout(&self) -> Duration {
        self.config.request_timeout
    }

    /// The number of servers.
    pub(crate) const fn servers(&self) -> usize {
        self.config.endpoints.len()
    }

    /// The host and port of each server, for messages.
    pub(crate) fn addresses(&self) -> String {
        self.config.endpoints.join(", ")
    }

    /// Changes whenever a connection is given up.
    pub(crate) fn epoch(&self) -> watch::Receiver<u64> {
        self.epoch.subscribe()
    }

    /// Sends a request to one server, or to others while it cannot be sent. The answer must come within
    /// `limit`.
    pub(crate) async fn ask<T, F, A>(
        &self,
        operation: &'static str,
        limit: Duration,
        request: F,
    ) -> Result<T, Failed>
    where
        F: Fn(Arc<Client>) -> A + Send + Sync,
        A: Future<Output = Result<T, Error>> + Send,
        T: Send,
    {
        // Each server once, and one twice: its connection may have been closed meanwhile.
        let mut again = self.servers();
        loop {
            let mut opened = self.current();
            let asked = async {
                let used = match &opened {
                    Ok(opened) => opened.clone(),
                    Err(server) => self.open(*server).await?,
                };
                let client = Arc::clone(&used.client);
                opened = Ok(used);
                request(client).await
            };
            let error = match timeout(limit, asked).await {
                Ok(Ok(answer)) => {
                    if let Ok(opened) = opened {
                        *lock(&opened.answered) = Instant::now();
                    }
                    return Ok(answer);
                }
                Ok(Err(error)) => error,
                Err(_) => return Err(self.silent(operation, limit, &opened)),
            };
            let mut verdict = judge(&error).ok_or(Failed::LeaseGone)?;
            if opened.is_err() {
                verdict = self.unsent(verdict, &error);
            }
            let why = format!("{} ({})", text(&error), self.place(&opened));
            if verdict.reconnect {
                self.give_up(&opened);
            }
            if !verdict.again || again == 0 {
                return Err(Failed::Other(fault(operation, verdict.outcome, why)));
            }
            again -= 1;
        }
    }

    /// The error of a request without an answer within `limit`.
    fn silent(
        &self,
        operation: &'static str,
        limit: Duration,
        opened: &Result<Opened, usize>,
    ) -> Failed {
        // If the last answer is recent, the connection is sound and the server is slow. An answer that came just
        // after this request was written says nothing.
        let silence = |opened: &Opened| lock(&opened.answered).elapsed();
        if opened.as_ref().map_or(limit, silence) >= limit / 2 {
            self.give_up(opened);
        }
        let why = format!("no answer from {} within {limit:?}", self.place(opened));
        let outcome = match opened {
            Ok(_) => Outcome::Indeterminate,
            // The connection was not made: the request was not sent.
            Err(_) => Outcome::Unavailable,
        };
        Failed::Other(fault(operation, outcome, why))
    }

    /// The meaning of an error that came before the request was sent.
    fn unsent(&self, verdict: Verdict, error: &Error) -> Verdict {
        let of_files = matches!(error, Error::TransportError(_) | Error::IoError(_));
        match verdict.outcome {
            // The user was not authenticated: the request was not sent.
            Outcome::Indeterminate => Verdict {
                outcome: Outcome::Unavailable,
                again: verdict.reconnect,
                ..verdict
            },
            // Files that could be used before are being replaced, perhaps.
            Outcome::Rejected if of_files && lock(&self.state).connected => Verdict {
                outcome: Outcome::Unavailable,
                ..verdict
            },
            _ => verdict,
        }
    }

    pub(crate) async fn txn(
        &self,
        operation: &'static str,
        txn: &Txn,
    ) -> Result<TxnResponse, Failed> {
        self.ask(operation, self.request_timeout(), |client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        })
        .await
    }

    /// The rest of a lease; `None` if it has ended, or there is none.
    pub(crate) async fn remaining(
        &self,
        operation: &'static str,
        lease: i64,
    ) -> Result<Option<Duration>, Failed> {
        if lease == 0 {
            return Ok(None);
        }
        let asked = self.ask(operation, self.request_timeout(), |client| async move {
            client.lease_client().time_to_live(lease, None).await
        });
        match asked.await {
            Ok(answer) => Ok(u64::try_from(answer.ttl()).ok().map(Duration::from_secs)),
            Err(Failed::LeaseGone) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    fn place(&self, opened: &Result<Opened, usize>) -> &str {
        let server = opened
            .as_ref()
            .map_or_else(|server| *server, |opened| opened.server);
        self.config.endpoints.get(server).map_or("", String::as_str)
    }

    /// The connection in use, or the server that has none yet.
    fn current(&self) -> Result<Opened, usize> {
        let state = lock(&self.state);
        state.opened.clone().ok_or(state.current)
    }

    /// Makes a connection. Without a user, this sends nothing yet.
    async fn open(&self, server: usize) -> Result<Opened, Error> {
        let endpoint = self.config.endpoints.get(server).cloned();
        let endpoint = endpoint.unwrap_or_default();
        let scheme = match self.config.tls {
            Some(_) => "https",
            None => "http",
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{endpoint}"))?
            .connect_timeout(self.config.connect_timeout)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .keep_alive_while_idle(true);
        #[cfg(feature = "tls")]
        let endpoint = with_tls(endpoint, &self.config)?;
        let options = Some(options(&self.config));
        let opening = self.runtime.spawn(async move {
            let channel = Channel::Tonic(endpoint.connect_lazy());
            Client::from_channel(channel, options).await
        });
        let client = opening.await.map_err(std::io::Error::other)??;
        let mut state = lock(&self.state);
        state.connected = true;
        let opened = Opened {
            client: Arc::new(client),
            server,
            answered: Arc::new(Mutex::new(Instant::now())),
        };
        if state.current == server {
            // Another task may have been faster.
            return Ok(state.opened.get_or_insert(opened).clone());
        }
        Ok(opened)
    }

    /// Gives the connection in use up, and changes to the next server.
    pub(crate) fn give_up_current(&self) {
        self.give_up(&self.current());
    }

    /// Gives a connection up, unless that was done before, and changes to the next server.
    fn give_up(&self, opened: &Result<Opened, usize>) {
        let mut state = lock(&self.state);
        let in_use = match (&state.opened, opened) {
            (Some(now), Ok(opened)) => Arc::ptr_eq(&now.client, &opened.client),
            (None, Err(server)) => state.current == *server,
            _ => false,
        };
        if !in_use {
            return;
        }
        state.opened = None;
        state.current = (state.current + 1) % self.servers();
        drop(state);
        self.epoch.send_modify(|epoch| *epoch += 1);
    }
}

fn options(config: &EtcdStoreBuilder) -> ConnectOptions {
    let options = ConnectOptions::new().with_require_leader(true);
    match &config.user {
        Some((user, password)) => options
            .with_user(user, password)
            .with_auto_token_refresh(true),
        None => options,
    }
}

#[cfg(feature = "tls")]
fn with_tls(endpoint: Endpoint, config: &EtcdStoreBuilder) -> Result<Endpoint, Error> {
    use std::io;
    use std::path::Path;

    use etcd_client::{Certificate, Identity, TlsOptions};

    let Some(tls) = &config.tls else {
        return Ok(endpoint);
    };
    let read = |path: &Path| {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        std::fs::read(path).map_err(named)
    };
    let options = match tls.trusted() {
        Some(path) => TlsOptions::new().ca_certificate(Certificate::from_pem(read(path)?)),
        None => TlsOptions::new().with_native_roots(),
    };
    let options = match tls.shown() {
        Some((cert, key)) => options.identity(Identity::from_pem(read(cert)?, read(key)?)),
        None => options,
    };
    Ok(endpoint.tls_config(options)?)
}
