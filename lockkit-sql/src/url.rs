//! The options in a URL that several databases have.

use std::path::PathBuf;
use std::time::Duration;

use lockkit_core::url::{InvalidUrl, StoreUrl, Tls};

use crate::config::{Options, Schema};
use crate::table::Table;

const SCHEMES: &[&str] = &[
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "sqlite")]
    "sqlite",
];

fn table(url: &mut StoreUrl) -> Result<Table, InvalidUrl> {
    let read = |text: &str| text.parse().map_err(|error| format!("{error}"));
    Ok(url.options.parsed("table", read)?.unwrap_or_default())
}

/// Takes the options that every database has.
pub(crate) fn common(url: &mut StoreUrl, mut options: Options) -> Result<Options, InvalidUrl> {
    options.table = table(url)?;
    let schemas = [("create", Schema::Create), ("check", Schema::Check)];
    options.schema = url
        .options
        .choice("schema", &schemas)?
        .unwrap_or(options.schema);
    options.poll = url.options.poll("poll")?.or(options.poll);
    Ok(options)
}

/// Takes the options that the databases with a server have.
pub(crate) fn server(url: &mut StoreUrl, options: &mut Options) -> Result<(), InvalidUrl> {
    options.connect_timeout = connect_timeout(url)?.unwrap_or(options.connect_timeout);
    match url.options.number("connections")? {
        Some(0) => {
            let why = "there must be at least one";
            return Err(InvalidUrl::bad_value("connections", "0", why));
        }
        Some(most) => options.connections = usize::try_from(most).unwrap_or(usize::MAX),
        None => {}
    }
    options.pin = url.options.flag("pin")?.unwrap_or(options.pin);
    options.prepare = url.options.flag("prepare")?.unwrap_or(options.prepare);
    Ok(())
}

/// A duration or, as in libpq, a number of seconds.
fn connect_timeout(url: &mut StoreUrl) -> Result<Option<Duration>, InvalidUrl> {
    const NAME: &str = "connect_timeout";
    let seconds = url.options.text(NAME).and_then(|text| text.parse().ok());
    match seconds.filter(|seconds| *seconds > 0) {
        Some(seconds) => Ok(Some(Duration::from_secs(seconds))),
        None => url.options.positive_duration(NAME),
    }
}

/// Takes the path of a Unix socket: the value of `option`, or a host such as `%2Frun%2Fpostgresql`.
pub(crate) fn socket(
    url: &mut StoreUrl,
    option: &'static str,
) -> Result<Option<String>, InvalidUrl> {
    match url.options.text(option) {
        Some(path) if path.starts_with('/') => Ok(Some(path)),
        Some(other) => {
            let expected = "write the path of a socket here, and a host before the database";
            Err(InvalidUrl::bad_value(option, &other, expected))
        }
        None => Ok(match url.hosts() {
            [host] if host.name().starts_with('/') => Some(host.name().to_owned()),
            _ => None,
        }),
    }
}

/// The other names that libpq and the clients of MySQL have for TLS options.
const ALIASES: [(&str, &str); 7] = [
    ("ssl-mode", "sslmode"),
    ("sslrootcert", "ca"),
    ("ssl-ca", "ca"),
    ("sslcert", "cert"),
    ("ssl-cert", "cert"),
    ("sslkey", "key"),
    ("ssl-key", "key"),
];

/// How much TLS proves, from nothing to the name of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// The words of libpq and of MySQL. The driver has no mode for `allow`.
const TLS_MODES: [(&str, TlsMode); 11] = [
    ("disable", TlsMode::Disable),
    ("disabled", TlsMode::Disable),
    ("allow", TlsMode::Prefer),
    ("prefer", TlsMode::Prefer),
    ("preferred", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("required", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
    ("verify_ca", TlsMode::VerifyCa),
    ("verify-full", TlsMode::VerifyFull),
    ("verify_identity", TlsMode::VerifyFull),
];

/// Takes the TLS options. `verified`: whether another option demands that the server is verified.
pub(crate) fn tls(url: &mut StoreUrl, verified: bool) -> Result<(TlsMode, Tls), InvalidUrl> {
    for (alias, name) in ALIASES {
        url.options.alias(alias, name)?;
    }
    let word = url.options.text("sslmode");
    let scheme = url.scheme().to_owned();
    let tls = url.tls(&scheme, true)?.unwrap_or_default();
    let has_ca = tls.trusted().is_some();
    let has_certificates = has_ca || tls.shown().is_some();
    let mode = match word.as_deref().map(mode_of).transpose()? {
        _ if verified => TlsMode::VerifyFull,
        // A URL with certificates means a server that is verified.
        Some(mode)
            if has_ca && mode < TlsMode::VerifyCa
                || has_certificates && mode < TlsMode::Require =>
        {
            let why = "the URL has certificates, and this verifies none: write `verify-full`";
            return Err(InvalidUrl::bad_value(
                "sslmode",
                &word.unwrap_or_default(),
                why,
            ));
        }
        Some(TlsMode::VerifyCa) if has_ca && authorities(&tls).is_none() => {
            let why = "a public authority vouches for every server: write `verify-full`";
            return Err(InvalidUrl::bad_value("sslmode", "verify-ca", why));
        }
        Some(mode) => mode,
        None if has_certificates => TlsMode::VerifyFull,
        None if cfg!(feature = "tls") => TlsMode::Prefer,
        None => TlsMode::Disable,
    };
    if mode > TlsMode::Prefer && !cfg!(feature = "tls") {
        return Err(InvalidUrl::feature_off(&scheme, "tls"));
    }
    Ok((mode, tls))
}

fn mode_of(word: &str) -> Result<TlsMode, InvalidUrl> {
    let mut modes = TLS_MODES.iter();
    let mode = modes.find(|(known, _)| word.eq_ignore_ascii_case(known));
    mode.map(|(_, mode)| *mode).ok_or_else(|| {
        let expected = "write `disable`, `prefer`, `require`, `verify-ca` or `verify-full`";
        InvalidUrl::bad_value("sslmode", word, expected)
    })
}

/// The file of certificates to trust beside those of the public authorities, for which libpq has the word
/// `system`.
pub(crate) fn authorities(tls: &Tls) -> Option<&PathBuf> {
    tls.trusted().filter(|file| file.as_os_str() != "system")
}

/// The statements that create the table of the store that a URL names. It connects to nothing.
///
/// # Errors
/// - [`InvalidUrl`] if the URL is not that of an SQL store of this build.
///
/// # Examples
/// ```
/// # #[cfg(feature = "postgres")] {
/// let ddl = lockkit_sql::ddl(&"postgres://db/?table=app.locks".parse()?)?;
/// assert!(ddl.contains("CREATE TABLE"));
/// # }
/// # Ok::<(), lockkit_core::url::InvalidUrl>(())
/// ```
pub fn ddl(url: &StoreUrl) -> Result<String, InvalidUrl> {
    let mut store = url.clone();
    let table = table(&mut store)?;
    match url.scheme() {
        #[cfg(feature = "mysql")]
        "mysql" => Ok(crate::driver::ddl::<sqlx::MySql>(&table)),
        #[cfg(feature = "postgres")]
        "postgres" => Ok(crate::driver::ddl::<sqlx::Postgres>(&table)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(crate::driver::ddl::<sqlx::Sqlite>(&table)),
        other => Err(InvalidUrl::unknown_scheme(other, SCHEMES)),
    }
}

#[cfg(all(test, any(feature = "mysql", feature = "postgres")))]
mod tests {
    use super::*;

    fn read(options: &str) -> Result<(TlsMode, Tls), InvalidUrl> {
        let mut url = format!("postgres://db/app?{options}").parse()?;
        tls(&mut url, false)
    }

    #[test]
    #[cfg(feature = "tls")]
    fn certificates_demand_verification() {
        let mode = |options| read(options).map(|(mode, _)| mode);
        for (options, expected) in [
            ("", TlsMode::Prefer),
            ("sslmode=disable", TlsMode::Disable),
            ("sslmode=require", TlsMode::Require),
            ("ca=/ca.pem", TlsMode::VerifyFull),
            ("ca=/ca.pem&sslmode=verify-ca", TlsMode::VerifyCa),
            ("cert=/me.pem&key=/me.key", TlsMode::VerifyFull),
            ("cert=/c&key=/k&sslmode=require", TlsMode::Require),
            ("sslrootcert=system", TlsMode::VerifyFull),
            ("ssl-mode=VERIFY_IDENTITY", TlsMode::VerifyFull),
            ("sslmode=allow", TlsMode::Prefer),
        ] {
            assert_eq!(mode(options), Ok(expected), "{options}");
        }
        for options in [
            "sslrootcert=/ca&sslcert=/c&sslkey=/k",
            "ca=/ca&cert=/c&key=/k",
        ] {
            let (_, tls) = read(options).unwrap();
            assert_eq!(tls, Tls::new().ca("/ca").identity("/c", "/k"));
            assert_eq!(authorities(&tls), Some(&"/ca".into()));
        }
        let (_, tls) = read("sslrootcert=system").unwrap();
        assert_eq!(authorities(&tls), None);
    }

    #[test]
    fn refuses_certificates_without_verification() {
        for options in [
            "ca=/ca.pem&sslmode=require",
            "ca=/ca.pem&sslmode=prefer",
            "ca=/ca.pem&sslmode=disable",
            "cert=/me.pem&key=/me.key&sslmode=prefer",
            "sslrootcert=system&sslmode=require",
            "sslrootcert=system&sslmode=verify-ca",
            "cert=/me.pem",
            "key=/me.key",
        ] {
            let error = read(options).unwrap_err();
            assert!(error.to_string().contains(" cannot be "), "{error}");
        }
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn refuses_tls_that_is_not_built_in() {
        for options in ["sslmode=require", "ca=/ca.pem", "sslmode=verify-full"] {
            let error = read(options).unwrap_err();
            assert!(error.to_string().contains("the feature `tls`"), "{error}");
        }
        let mode = |options| read(options).map(|(mode, _)| mode);
        assert_eq!(mode(""), Ok(TlsMode::Disable));
        assert_eq!(mode("sslmode=prefer"), Ok(TlsMode::Prefer));
    }
}
