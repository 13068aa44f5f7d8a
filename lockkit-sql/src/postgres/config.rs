//! Where the server is, and the options in a URL.

use lockkit_core::url::{InvalidUrl, StoreUrl};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::Postgres;
use crate::config::{Options, SqlStoreBuilder};
use crate::dialect::Source;
use crate::{tls, url};

impl From<PgConnectOptions> for Source<sqlx::Postgres> {
    fn from(options: PgConnectOptions) -> Self {
        Self::new(options)
    }
}

/// A pooler refuses parameters that it does not know, and no statement needs this one.
pub(super) fn plain(options: PgConnectOptions) -> PgConnectOptions {
    options.extra_float_digits(None)
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
    let [host] = url.hosts() else {
        url.expect(false, SHAPE)?;
        return Err(InvalidUrl::Shape {
            scheme: url.scheme().to_owned(),
            expected: SHAPE,
        });
    };
    let database = url.path().trim_matches('/');
    url.expect(!database.contains('/'), SHAPE)?;
    let user = url.user().unwrap_or("postgres");
    // All that the driver would read from the environment: what a URL means must not depend on it.
    let mut server = PgConnectOptions::new_without_pgpass()
        .application_name(name.as_deref().unwrap_or("lockkit"))
        .host(host.name())
        .port(host.port().unwrap_or(5432))
        .username(user)
        .password(url.password().unwrap_or_default())
        // The server's own choice where none is named.
        .database(if database.is_empty() { user } else { database })
        .ssl_mode(tls.mode);
    server = match tls.ca {
        Some(ca) => server.ssl_root_cert(ca),
        None => server.ssl_root_cert_from_pem(Vec::new()),
    };
    let identified = tls.identity.is_some();
    if let Some((cert, key)) = tls.identity {
        server = server.ssl_client_cert(cert).ssl_client_key(key);
    }
    expect_unset("PGOPTIONS")?;
    if !identified {
        expect_unset("PGSSLCERT")?;
        expect_unset("PGSSLKEY")?;
    }
    Ok((server, files))
}

/// The driver reads this variable, and cannot be told to forget it.
fn expect_unset(variable: &str) -> Result<(), InvalidUrl> {
    if std::env::var_os(variable).is_none() {
        return Ok(());
    }
    let why = "what a URL means must not depend on the environment: unset it for this program";
    Err(InvalidUrl::bad_value("postgres", variable, why))
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
        let (plain, _) = super::server(&mut "postgres://h".parse().unwrap()).unwrap();
        assert_eq!(plain.get_username(), "postgres");
        assert_eq!(plain.get_database(), Some("postgres"));

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

    /// Run again by [`the_environment_changes_no_url`], with variables that the driver reads.
    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn reads_nothing_from_the_environment() {
        let url = std::env::var("LOCKKIT_TEST_URL").unwrap();
        let answer = match server(&mut url.parse().unwrap()) {
            Ok((server, _)) => format!("{server:?}"),
            Err(error) => error.to_string(),
        };
        println!("<{}>", answer.escape_default());
    }

    #[test]
    fn the_environment_changes_no_url() {
        let read = |variables: &[(&str, &str)]| {
            let program = std::env::current_exe().unwrap();
            let mut child = std::process::Command::new(program);
            let name = "postgres::config::tests::reads_nothing_from_the_environment";
            child.args([name, "--exact", "--ignored", "--nocapture"]);
            child.env("LOCKKIT_TEST_URL", "postgres://h/?sslmode=disable");
            let child = child.envs(variables.iter().copied()).output().unwrap();
            let said = String::from_utf8(child.stdout).unwrap();
            let (_, said) = said.split_once('<').unwrap();
            said.split_once('>').unwrap().0.to_owned()
        };
        let set = [
            ("PGHOST", "elsewhere"),
            ("PGPORT", "7"),
            ("PGUSER", "somebody"),
            ("PGPASSWORD", "s3cret"),
            ("PGDATABASE", "another"),
            ("PGAPPNAME", "x"),
            ("PGSSLMODE", "require"),
            ("PGSSLROOTCERT", "/no/such.pem"),
        ];
        assert_eq!(read(&set), read(&[]));
        for variable in ["PGOPTIONS", "PGSSLCERT", "PGSSLKEY"] {
            let said = read(&[(variable, "-c search_path=other")]);
            assert!(said.contains(variable), "{said}");
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
