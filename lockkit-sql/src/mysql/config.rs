//! The options of a server, and of its URL.

use lockkit_core::url::{InvalidUrl, StoreUrl};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use super::Mysql;
use crate::builder::SqlStoreBuilder;
use crate::config::Options;
use crate::driver::Source;
use crate::url::{self, TlsMode, authorities};

impl From<MySqlConnectOptions> for Source<sqlx::MySql> {
    fn from(options: MySqlConnectOptions) -> Self {
        Self::new(options)
    }
}

const PORT: u16 = 3306;
const SHAPE: &str = "has one host and a database: write `mysql://user:password@db:3306/app`";

impl SqlStoreBuilder<Mysql> {
    /// Reads `mysql://`, whose client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `table=app.locks` | the table, and its database if it is not that of the URL | `lockkit_locks` |
    /// | `schema=create` `check` | whether a missing table is created | `create` |
    /// | `poll=1ms..1s` | the shortest and the longest pause between two polls of a waiter | as shown |
    /// | `pin=true` | a session of the client proves that it is alive | `false` |
    /// | `prepare=true` | connections prepare statements; write `false` behind a proxy that cannot | as shown |
    /// | `connections=8` | the most connections for acquires and releases | as shown |
    /// | `connect_timeout=1500ms` | the longest that connecting may take, and each request that opens the store | as shown |
    /// | `sslmode=disable` `prefer` `require` `verify-ca` `verify-full` | TLS (feature `tls`); the first three trust any server, `verify-ca` any with a certificate for some name | `prefer`; with `ca` or `cert` `verify-full` |
    /// | `ca=/path.pem` | certificates to trust, beside those of public authorities, which the driver contains | none |
    /// | `cert=/path.pem`, `key=/path.pem` | the client's certificate and its key | none |
    /// | `socket=/run/mysqld/mysqld.sock` | the server's socket, instead of a host; a host `%2Frun%2F..` means the same | none |
    ///
    /// `charset=utf8mb4`, which many URLs have, changes nothing.
    ///
    /// The names of MySQL's own clients work too: `ssl-mode` with `REQUIRED` `VERIFY_IDENTITY` and so on,
    /// `ssl-ca`, `ssl-cert`, `ssl-key`, `unix_socket`.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let mut options = url::common(url, Options::default())?;
        url::server(url, &mut options)?;
        let (mode, tls) = url::tls(url, false)?;
        let mode = match mode {
            TlsMode::Disable => MySqlSslMode::Disabled,
            TlsMode::Prefer => MySqlSslMode::Preferred,
            TlsMode::Require => MySqlSslMode::Required,
            TlsMode::VerifyCa => MySqlSslMode::VerifyCa,
            TlsMode::VerifyFull => MySqlSslMode::VerifyIdentity,
        };
        url.options.alias("unix_socket", "socket")?;
        let socket = url::socket(url, "socket")?;
        // What the driver speaks in any case.
        url.options.choice("charset", &[("utf8mb4", ())])?;
        url.options.finish()?;
        let database = url.path().trim_start_matches('/').to_owned();
        url.expect(!database.is_empty() && !database.contains('/'), SHAPE)?;
        let server = match (socket, url.hosts()) {
            (Some(path), [] | [_]) => MySqlConnectOptions::new().socket(path),
            (None, [host]) => MySqlConnectOptions::new()
                .host(host.name())
                .port(host.port().unwrap_or(PORT)),
            _ => return Err(InvalidUrl::shape(url.scheme(), SHAPE)),
        };
        let mut server = server.ssl_mode(mode).database(&database);
        if let Some(user) = url.user() {
            server = server.username(user);
        }
        if let Some(password) = url.password() {
            server = server.password(password);
        }
        if let Some(ca) = authorities(&tls) {
            server = server.ssl_ca(ca);
        }
        if let Some((cert, key)) = tls.shown() {
            server = server.ssl_client_cert(cert).ssl_client_key(key);
        }
        Ok(Self::with(server.into(), options, tls))
    }
}
