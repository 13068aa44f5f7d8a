//! The options of a server, and of its URL.

use lockkit_core::url::{Host, InvalidUrl, StoreUrl, Tls};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::Postgres;
use crate::builder::SqlStoreBuilder;
use crate::config::{Options, Wake};
use crate::driver::Source;
use crate::url::{self, TlsMode, authorities};

impl From<PgConnectOptions> for Source<sqlx::Postgres> {
    fn from(options: PgConnectOptions) -> Self {
        Self::new(options)
    }
}

const PORT: u16 = 5432;
const SHAPE: &str =
    "has one host and perhaps a database: write `postgres://user:password@host:5432/database`";

impl SqlStoreBuilder<Postgres> {
    /// Reads `postgres://`, whose client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `table=locks` `app.locks` | the table | `lockkit_locks` |
    /// | `schema=create` `check` | whether a missing table is created | `create` |
    /// | `wake=push` `poll` | how waiters learn of a free lock; behind a pooler in transaction mode write `poll` | `push` |
    /// | `poll=1ms..1s` | the shortest and the longest pause between two polls of a waiter; with `wake=push` it polls once in the longest | as shown; with `wake=push` and no pin three seconds |
    /// | `pin=true` | a session of the client proves that it is alive, so that a crash frees its locks in about a second; not behind a pooler in transaction mode | `false` |
    /// | `prepare=true` | connections prepare statements; not with `wake=poll` | as shown |
    /// | `connections=8` | the most connections for acquires and releases | as shown |
    /// | `connect_timeout=1500ms` | the longest that connecting may take, and each request that opens the store | as shown |
    /// | `sslmode=disable` `prefer` `require` `verify-ca` `verify-full` | TLS as in libpq (feature `tls`); the first three trust any server, `verify-ca` any with a certificate for some name | `prefer`; with `ca` or `cert` `verify-full` |
    /// | `ca=/path.pem` | certificates to trust, beside those of public authorities, which the driver contains | none |
    /// | `cert=/path.pem`, `key=/path.pem` | the client's certificate and its key | none |
    /// | `application_name=app` | the name that the server shows | `lockkit` |
    /// | `options=-c search_path=app` | settings of each session, as in libpq: `-c name=value` or `--name=value` | none |
    /// | `host=/run/postgresql` | the directory of the server's socket, instead of a host; a host `%2Frun%2Fpostgresql` means the same | none |
    ///
    /// libpq's names of options work too: `sslrootcert` (a path, or `system` for the public authorities, not with `verify-ca`),
    /// `sslcert`, `sslkey`, and `connect_timeout` as a number of seconds. With `channel_binding=require` the
    /// server's certificate is verified (`verify-full`), because the driver binds no channels. libpq's
    /// environment variables are not read: without a user the URL means `postgres`, without a database that
    /// of the user's name.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let mut options = url::common(url, Options::default())?;
        url::server(url, &mut options)?;
        let wakes = [("push", Wake::Push), ("poll", Wake::Poll)];
        options.wake = url.options.choice("wake", &wakes)?.unwrap_or(options.wake);
        let (server, tls) = server(url)?;
        Ok(Self::with(server.into(), options, tls))
    }
}

/// The server and its certificates.
fn server(url: &mut StoreUrl) -> Result<(PgConnectOptions, Tls), InvalidUrl> {
    let bindings = [("disable", false), ("prefer", false), ("require", true)];
    let bound = url.options.choice("channel_binding", &bindings)?;
    let (mode, tls) = url::tls(url, bound.unwrap_or(false))?;
    let mode = match mode {
        TlsMode::Disable => PgSslMode::Disable,
        TlsMode::Prefer => PgSslMode::Prefer,
        TlsMode::Require => PgSslMode::Require,
        TlsMode::VerifyCa => PgSslMode::VerifyCa,
        TlsMode::VerifyFull => PgSslMode::VerifyFull,
    };
    let name = url.options.text("application_name");
    let settings = settings(url)?;
    let socket = url::socket(url, "host")?;
    // As in libpq: the server offers none there, and `channel_binding` alone demands it.
    let mode = match bound {
        Some(true) => mode,
        _ if socket.is_some() => PgSslMode::Disable,
        _ => mode,
    };
    url.options.finish()?;
    let host = match (&socket, url.hosts()) {
        (Some(_), []) => None,
        (Some(_), [host]) | (None, [host]) => Some(host),
        _ => {
            url.expect(false, SHAPE)?;
            None
        }
    };
    let database = url.path().trim_matches('/');
    url.expect(!database.contains('/'), SHAPE)?;
    let user = url.user().unwrap_or("postgres");
    // Sets all that the driver would read from the environment.
    let mut server = PgConnectOptions::new_without_pgpass()
        .application_name(name.as_deref().unwrap_or("lockkit"))
        .port(host.and_then(Host::port).unwrap_or(PORT))
        .username(user)
        .password(url.password().unwrap_or_default())
        // The choice of the server if the URL names none.
        .database(if database.is_empty() { user } else { database })
        .ssl_mode(mode);
    server = match (socket, host) {
        (Some(path), _) => server.socket(path),
        (None, Some(host)) => server.host(host.name()),
        (None, None) => server,
    };
    server = match authorities(&tls) {
        Some(ca) => server.ssl_root_cert(ca),
        None => server.ssl_root_cert_from_pem(Vec::new()),
    };
    if let Some((cert, key)) = tls.shown() {
        server = server.ssl_client_cert(cert).ssl_client_key(key);
    } else {
        expect_unset("PGSSLCERT")?;
        expect_unset("PGSSLKEY")?;
    }
    expect_unset("PGOPTIONS")?;
    if !settings.is_empty() {
        server = server.options(settings);
    }
    Ok((server, tls))
}

/// Takes the settings of sessions, which libpq writes as arguments of a command line. A backslash stands
/// before a blank in a value.
fn settings(url: &mut StoreUrl) -> Result<Vec<(String, String)>, InvalidUrl> {
    const NAME: &str = "options";
    const BLANK: &str = "\0";
    let text = url.options.text(NAME).unwrap_or_default();
    let wrong = || {
        let expected = "write settings as `-c search_path=app`, with `%20` for a blank";
        InvalidUrl::bad_value(NAME, &text, expected)
    };
    let marked = text.replace("\\ ", BLANK);
    let mut words = marked.split_whitespace();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word {
            "-c" => words.next(),
            _ => word.strip_prefix("--").or_else(|| word.strip_prefix("-c")),
        };
        let setting = setting.and_then(|setting| setting.split_once('='));
        let (name, value) = setting.ok_or_else(wrong)?;
        settings.push((name.replace('-', "_"), value.replace(BLANK, " ")));
    }
    Ok(settings)
}

/// The driver reads this variable in any case.
fn expect_unset(variable: &str) -> Result<(), InvalidUrl> {
    if std::env::var_os(variable).is_none() {
        return Ok(());
    }
    Err(InvalidUrl::new(format!(
        "the variable `{variable}` is set: what a URL means must not depend on the environment; unset it for this program"
    )))
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
    fn reads_every_part_of_a_url() {
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
    fn reads_options_of_libpq() {
        let server = |text: &str| server(&mut text.parse().unwrap()).unwrap().0;
        let socket = server("postgres://%2Frun%2Fpostgresql:5433/shop");
        assert_eq!(socket.get_socket(), Some(&"/run/postgresql".into()));
        assert_eq!(
            (socket.get_port(), socket.get_database()),
            (5433, Some("shop"))
        );
        let socket = server("postgres://app@/shop?host=/run/postgresql&sslmode=prefer");
        assert_eq!(socket.get_socket(), Some(&"/run/postgresql".into()));
        assert!(matches!(socket.get_ssl_mode(), PgSslMode::Disable));
        let set = server("postgres://h/?options=-c%20search_path=a\\%20b%20--lock-timeout=5s");
        assert_eq!(
            set.get_options(),
            Some("-c search_path=a\\ b -c lock_timeout=5s")
        );
        let timeout = read("postgres://h/?connect_timeout=10").unwrap();
        assert!(format!("{timeout:?}").contains("connect_timeout: 10s"));
    }

    #[test]
    #[cfg(feature = "tls")]
    fn channel_binding_demands_a_verified_server() {
        let url = "postgres://h/db?sslmode=require&channel_binding=require";
        let (server, _) = server(&mut url.parse().unwrap()).unwrap();
        assert!(matches!(server.get_ssl_mode(), PgSslMode::VerifyFull));
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
            let start = format!("the variable `{variable}` is set");
            assert!(said.starts_with(&start), "{said}");
        }
    }
}
