//! The connections to the servers of the cluster.
//!
//! The client library spreads requests over all servers, dead ones too. So here all requests go to one
//! server until it fails, by a client for it alone. A request that was never sent goes to the
//! next server at once. A request that may have been executed is an error, which the caller may repeat.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error, Txn, TxnResponse};
use lockkit_core::Outcome;
use lockkit_core::store::lock;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, timeout};
use tonic::transport::Endpoint;

use crate::config::{EtcdStoreBuilder, PORT};
use crate::error::{Failed, fault, judge, text};

/// The interval of pings on silent connections. Keep-alives of sessions are usually more frequent.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(2);
/// The shortest and the longest pause after a stream or a read that failed.
pub(crate) const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

pub(crate) struct Link {
    config: EtcdStoreBuilder,
    /// That of all connections, also of one that a caller on another runtime needs first.
    runtime: Handle,
    /// The server in use. It changes whenever one is given up: streams must be opened again then.
    current: watch::Sender<Arc<Server>>,
    /// Whether a connection was made before, so that its files could be used.
    connected: AtomicBool,
}

/// A server, from when it is chosen until it is given up.
#[derive(Default)]
pub(crate) struct Server {
    number: usize,
    /// The connection to it, made when it is needed.
    opened: OnceCell<Opened>,
}

struct Opened {
    client: Arc<Client>,
    /// When it was made, or answered last.
    answered: Mutex<Instant>,
}

impl Link {
    pub(crate) fn new(mut config: EtcdStoreBuilder, runtime: Handle) -> Self {
        if config.endpoints.is_empty() {
            config = config.endpoint("127.0.0.1", PORT);
        }
        Self {
            config,
            runtime,
            current: watch::Sender::default(),
            connected: AtomicBool::new(false),
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

    /// Changes whenever a server is given up.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<Server>> {
        self.current.subscribe()
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
            let server = Arc::clone(&self.current.borrow());
            let mut sent = false;
            let asked = async {
                let opening = server.opened.get_or_try_init(|| self.open(&server));
                let opened = opening.await?;
                sent = true;
                let answer = request(Arc::clone(&opened.client)).await?;
                *lock(&opened.answered) = Instant::now();
                Ok(answer)
            };
            let error = match timeout(limit, asked).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => return Err(self.silent(operation, limit, &server)),
            };
            let mut verdict = judge(&error).ok_or(Failed::LeaseGone)?;
            if !sent {
                verdict.outcome = self.unsent(verdict.outcome, &error);
            }
            let why = format!("{} ({})", text(&error), self.place(&server));
            if verdict.reconnect {
                self.give_up(&server);
            }
            if !verdict.again() || again == 0 {
                return Err(Failed::Other(fault(operation, verdict.outcome, why)));
            }
            again -= 1;
        }
    }

    /// The error of a request without an answer within `limit`.
    fn silent(&self, operation: &'static str, limit: Duration, server: &Arc<Server>) -> Failed {
        let (silence, outcome) = match server.opened.get() {
            Some(opened) => (lock(&opened.answered).elapsed(), Outcome::Indeterminate),
            // The connection was not made: the request was not sent.
            None => (limit, Outcome::Unavailable),
        };
        // If the last answer is recent, the connection is sound and the server is slow. An answer that came just
        // after this request was written says nothing.
        if silence >= limit / 2 {
            self.give_up(server);
        }
        let why = format!("no answer from {} within {limit:?}", self.place(server));
        Failed::Other(fault(operation, outcome, why))
    }

    /// The outcome of an error that came before the request was sent.
    fn unsent(&self, outcome: Outcome, error: &Error) -> Outcome {
        let of_files = matches!(error, Error::TransportError(_) | Error::IoError(_));
        match outcome {
            // The user was not authenticated.
            Outcome::Indeterminate => Outcome::Unavailable,
            // Files that could be used before are being replaced, perhaps.
            Outcome::Rejected if of_files && self.connected.load(Ordering::Relaxed) => {
                Outcome::Unavailable
            }
            outcome => outcome,
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

    /// The rest of a lease; `None` if it has ended.
    pub(crate) async fn remaining(
        &self,
        operation: &'static str,
        lease: i64,
    ) -> Result<Option<Duration>, Failed> {
        let asked = self.ask(operation, self.request_timeout(), |client| async move {
            client.lease_client().time_to_live(lease, None).await
        });
        match asked.await {
            Ok(answer) => Ok(u64::try_from(answer.ttl()).ok().map(Duration::from_secs)),
            Err(Failed::LeaseGone) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    fn place(&self, server: &Server) -> &str {
        let endpoint = self.config.endpoints.get(server.number);
        endpoint.map_or("", String::as_str)
    }

    /// Makes a connection. Without a user, this sends nothing yet.
    async fn open(&self, server: &Server) -> Result<Opened, Error> {
        let endpoint = self.place(server);
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
        self.connected.store(true, Ordering::Relaxed);
        Ok(Opened {
            client: Arc::new(client),
            answered: Mutex::new(Instant::now()),
        })
    }

    /// Gives the server in use up, and changes to the next one.
    pub(crate) fn give_up_current(&self) {
        let server = Arc::clone(&self.current.borrow());
        self.give_up(&server);
    }

    /// Gives a server up, unless that was done before, and changes to the next one.
    fn give_up(&self, server: &Arc<Server>) {
        self.current.send_if_modified(|current| {
            let in_use = Arc::ptr_eq(current, server);
            if in_use {
                *current = Arc::new(Server {
                    number: (server.number + 1) % self.servers(),
                    opened: OnceCell::new(),
                });
            }
            in_use
        });
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
