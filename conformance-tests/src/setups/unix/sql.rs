//! The stores in databases that have a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_sql::{Dialect, SqlStoreBuilder, Wake};

use super::hooks_of_server;
use super::pool::{NAMESPACES, ServerPool, tests_the_client};
use crate::failure::Outcome;
use crate::namespace::{Hook, Namespace, Server};
use crate::servers::{PgBouncer, Processes};
use crate::setup::Setup;
use crate::setups::pauses::{pauses, poll_option};

/// What differs between the servers of databases. A namespace is a user with the same name as its
/// schema or database.
#[async_trait]
pub trait SqlServer: Processes + Sized + 'static {
    /// The store's side of it.
    type Dialect: Dialect;
    /// Where its programs lie.
    type Programs: std::fmt::Debug + Send + Sync;

    /// Why no server can be started from `programs`.
    fn missing(programs: &Self::Programs) -> Option<String>;

    /// Starts a server.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it cannot be started.
    async fn start(programs: &Self::Programs) -> Outcome<Self>;

    /// Where it listens.
    fn port(&self) -> u16;

    /// Makes an empty namespace.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    async fn create(&self, namespace: &str) -> Outcome;

    /// Deletes all locks of a namespace.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    async fn wipe(&self, namespace: &str) -> Outcome;

    /// As [`Namespace::residue`]; `name` is that of the lock, in hexadecimal digits.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    async fn residue(&self, namespace: &str, name: &str) -> Outcome<Vec<String>>;

    /// As [`Namespace::lose_pushes`].
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    async fn lose_pushes(&self, namespace: &str, lose: bool) -> Outcome {
        let _ = (namespace, lose);
        Err(Hook::LosePushes.absent())
    }

    /// The options of a store in a namespace.
    fn builder(namespace: &str, port: u16) -> SqlStoreBuilder<Self::Dialect>;

    /// The same as a URL, which ends within its query.
    fn url(namespace: &str, port: u16) -> String;
}

/// Opens stores in a database on a server of this machine.
#[derive(Debug)]
pub struct SqlSetup<S: SqlServer> {
    name: &'static str,
    programs: S::Programs,
    options: Options,
    /// The setup that runs the cases of the client, if this is another version or make of its server.
    other_than: Option<&'static str>,
    pool: ServerPool<PooledServer<S>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Options {
    pin: bool,
    pooler: bool,
}

/// A server, and the pooler in front of it.
#[derive(Debug)]
struct PooledServer<S> {
    server: S,
    pooler: Option<PgBouncer>,
}

impl<S: SqlServer> SqlSetup<S> {
    /// Leases on the server of these programs.
    pub(super) fn new(name: &'static str, programs: S::Programs) -> Self {
        Self {
            name,
            programs,
            options: Options::default(),
            other_than: None,
            pool: ServerPool::new(),
        }
    }

    /// Pins holds.
    pub(super) const fn pin(mut self) -> Self {
        self.options.pin = true;
        self
    }

    /// Puts a PgBouncer in transaction mode in front of the server, through which no client is woken.
    pub(super) const fn pooler(mut self) -> Self {
        self.options.pooler = true;
        self
    }

    /// Runs only the cases of the server; the setup of this name runs the others.
    pub(super) const fn other_than(mut self, setup: &'static str) -> Self {
        self.other_than = Some(setup);
        self
    }

    async fn start(&self) -> Outcome<PooledServer<S>> {
        let server = S::start(&self.programs).await?;
        let pooler = if self.options.pooler {
            let users = (0..NAMESPACES).map(user);
            Some(PgBouncer::start(server.port(), users).await?)
        } else {
            None
        };
        Ok(PooledServer { server, pooler })
    }
}

fn user(number: u32) -> String {
    format!("site_{number}")
}

impl Options {
    fn builder<S: SqlServer>(self, user: &str, port: u16) -> SqlStoreBuilder<S::Dialect> {
        let builder = S::builder(user, port).pin(self.pin);
        if self.pooler {
            builder.wake(Wake::Poll).poll(pauses())
        } else {
            builder
        }
    }

    fn query(self) -> String {
        match (self.pin, self.pooler) {
            (false, false) => String::new(),
            (true, _) => "&pin=true".to_owned(),
            (_, true) => format!("&wake=poll&{}", poll_option()),
        }
    }
}

#[async_trait]
impl<S: SqlServer> Setup for SqlSetup<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.options.builder::<S>("", 0).capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        hooks_of_server(self.capabilities().waiting)
    }

    fn missing(&self) -> Option<String> {
        let pooler = self.options.pooler.then(PgBouncer::missing).flatten();
        S::missing(&self.programs).or(pooler)
    }

    fn skips(&self, case: &str) -> Option<String> {
        tests_the_client(case, self.other_than?)
    }

    fn is_one_of_all(&self) -> bool {
        self.other_than.is_none()
    }

    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        let place = self.pool.server(alone, self.start()).await?;
        let user = user(self.pool.number());
        place.server.create(&user).await?;
        Ok(Box::new(SqlNamespace {
            place,
            user,
            options: self.options,
        }))
    }
}

#[derive(Debug)]
struct SqlNamespace<S> {
    place: Arc<PooledServer<S>>,
    /// Of the user, and of its schema or database.
    user: String,
    options: Options,
}

impl<S: SqlServer> SqlNamespace<S> {
    fn port(&self) -> u16 {
        let pooler = self.place.pooler.as_ref();
        pooler.map_or_else(|| self.place.server.port(), |it| it.addr().port())
    }
}

#[async_trait]
impl<S: SqlServer> Namespace for SqlNamespace<S> {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at((Ipv4Addr::LOCALHOST, self.port()).into())
            .await
    }

    async fn open_at(&self, address: SocketAddr) -> Outcome<Arc<dyn DistributedLock>> {
        let builder = self.options.builder::<S>(&self.user, address.port());
        Ok(Arc::new(builder.connect().await?))
    }

    fn url(&self) -> Option<String> {
        Some(S::url(&self.user, self.port()) + &self.options.query())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.place.server)
    }

    fn address(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, self.port()).into())
    }

    async fn wipe(&self) -> Outcome {
        self.place.server.wipe(&self.user).await
    }

    async fn lose_pushes(&self, lose: bool) -> Outcome {
        self.place.server.lose_pushes(&self.user, lose).await
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let digits = name.as_str().bytes().map(|byte| format!("{byte:02x}"));
        let digits: String = digits.collect();
        self.place.server.residue(&self.user, &digits).await
    }
}
