//! Where the server is, and the options in a URL.

use lockkit_core::url::{InvalidUrl, StoreUrl};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::Postgres;
use crate::config::{Options, SqlStoreBuilder};
use crate::dialect::Source;
use crate::{tls, url};

impl From<PgConnectOptions> for Source<sqlx::Postgres> {
    fn from(options: PgConnectOptions) -> Self {
        // A pooler refuses parameters that it does not know, and no statement needs this one.
        Self::Own(Box::new(options.extra_float_digits(None)))
    }
}

impl From<sqlx::PgPool> for Source<sqlx::Postgres> {
    fn from(pool: sqlx::PgPool) -> Self {
        Self::Application(pool)
    }
}

const SHAPE: &str =
    "has one host and perhaps a database: write `postgres://user:password@host:5432/database`";

impl SqlStoreBuilder<Postgres> {
    /// Reads `postgres://`, whose client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `table=locks` `app.locks` | the table | `lockkit_locks` |
    /// | `schema=create` `check` | whether a table that is missing is made | `create` |
    /// | `wake=push` `poll` | how waiters learn of a free lock; behind a pooler in transaction mode write `poll` | `push` |
    /// | `poll=50ms..1s` | the pauses of waiters between two looks; with `wake=push` a waiter looks at least as often as the longest | as shown |
    /// | `pin=true` | each hold keeps its row locked on a connection of its own | `false` |
    /// | `prepare=true` | sessions keep statements ready, where no pooler stands between | as shown |
    /// | `connections=8` | the most connections for steps | as shown |
    /// | `connect_timeout=2s` | the longest that connecting may take | as shown |
    /// | `sslmode=disable` `prefer` `require` `verify-ca` `verify-full` | TLS as in libpq (feature `tls`); the first three believe any server, `verify-ca` any that has a certificate for some name | `prefer`; with `ca` or `cert` `verify-full` |
    /// | `ca=/path.pem` | certificates to trust, beside those of the public authorities that the driver brings along | none |
    /// | `cert=/path.pem`, `key=/path.pem` | the client's certificate and its key, for servers that ask for one | none |
    /// | `application_name=app` | what the server shows | `lockkit` |
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let mut options = url::common(url, Options::default())?;
        url::server(url, &mut options)?;
        url::wake(url, &mut options)?;
        options.prepare = url.options.flag("prepare")?.unwrap_or(options.prepare);
        let (server, files) = server(url)?;
        Ok(Self::with(server.into(), options).needing(files))
    }
}

/// The server, and the files that it needs.
fn server(url: &mut StoreUrl) -> Result<(PgConnectOptions, Vec<String>), InvalidUrl> {
    let modes = [
        PgSslMode::Disable,
        PgSslMode::Prefer,
        PgSslMode::Require,
        PgSslMode::VerifyCa,
        PgSslMode::VerifyFull,
    ];
    let tls = tls::take(url, modes)?;
    let files = tls.files();
    let name = url.options.text("application_name");
    url.options.finish()?;
    // Not from the environment: what a URL means must not depend on it.
    let mut server = PgConnectOptions::new_without_pgpass()
        .application_name(name.as_deref().unwrap_or("lockkit"));
    let [host] = url.hosts() else {
        url.expect(false, SHAPE)?;
        return Ok((server, files));
    };
    server = server.host(host.name()).port(host.port().unwrap_or(5432));
    if let Some(user) = url.user() {
        server = server.username(user);
    }
    if let Some(password) = url.password() {
        server = server.password(password);
    }
    let database = url.path().trim_matches('/');
    url.expect(!database.contains('/'), SHAPE)?;
    if !database.is_empty() {
        server = server.database(database);
    }
    server = server.ssl_mode(tls.mode);
    if let Some(ca) = tls.ca {
        server = server.ssl_root_cert(ca);
    }
    if let Some((cert, key)) = tls.identity {
        server = server.ssl_client_cert(cert).ssl_client_key(key);
    }
    Ok((server, files))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockkit_core::Waiting;

    use super::*;

    fn read(text: &str) -> Result<SqlStoreBuilder<Postgres>, InvalidUrl> {
        SqlStoreBuilder::<Postgres>::from_url(&mut text.parse()?)
    }

    #[test]
    fn every_part_of_a_url_arrives() {
        let mut url = "postgres://app:p%40ss@h:5433/shop?sslmode=disable&application_name=x"
            .parse()
            .unwrap();
        let (server, _) = server(&mut url).unwrap();
        assert_eq!((server.get_host(), server.get_port()), ("h", 5433));
        assert_eq!(server.get_username(), "app");
        assert_eq!(server.get_database(), Some("shop"));
        assert_eq!(server.get_application_name(), Some("x"));

        let builder = read(
            "postgres://h/?table=app.locks&poll=1ms..2ms&wake=poll&pin=true&connections=3&schema=check\
             &prepare=false",
        )
        .unwrap();
        let shown = format!("{builder:?}");
        assert!(shown.contains("prepare: false"), "{shown}");
        let can = builder.capabilities();
        assert_eq!((can.waiting, can.tells_loss), (Waiting::Poll, true));
        assert_eq!(can.poll.max, Duration::from_millis(2));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "postgres:",
            "postgres://a,b/",
            "postgres://h/a/b",
            "postgres://h/?table=Locks",
            "postgres://h/?wake=maybe",
            "postgres://h/?connections=0",
            "postgres://h/?connect_timeout=0s",
            "postgres://h/?sslmode=maybe",
            "postgres://h/?schema=drop",
            "postgres://h/?prepare=perhaps",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", read("postgres://us3r:s3cret@h/").unwrap());
        assert!(
            !shown.contains("us3r") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
