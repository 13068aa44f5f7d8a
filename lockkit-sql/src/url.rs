//! The options in a URL that every database has.

#[cfg(any(feature = "mysql", feature = "postgres"))]
use std::time::Duration;

use lockkit_core::url::{InvalidUrl, StoreUrl};

use crate::config::Options;
use crate::schema::Schema;
use crate::table::Table;

/// The schemes of this build.
pub(crate) const SCHEMES: &[&str] = &[
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "sqlite")]
    "sqlite",
];

/// Takes the table's name.
pub(crate) fn table(url: &mut StoreUrl) -> Result<Table, InvalidUrl> {
    match url.options.text("table") {
        None => Ok(Table::default()),
        Some(text) => text
            .parse()
            .map_err(|error| InvalidUrl::bad_value("table", &text, format!("{error}"))),
    }
}

/// Takes what every database has.
pub(crate) fn common(url: &mut StoreUrl, mut options: Options) -> Result<Options, InvalidUrl> {
    options.table = table(url)?;
    let schemas = [("create", Schema::Create), ("check", Schema::Check)];
    options.schema = url
        .options
        .choice("schema", &schemas)?
        .unwrap_or(options.schema);
    options.poll = url.options.poll("poll")?.unwrap_or(options.poll);
    Ok(options)
}

/// Takes what the databases with a server have.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn server(url: &mut StoreUrl, options: &mut Options) -> Result<(), InvalidUrl> {
    options.connect_timeout = connect_timeout(url)?.unwrap_or(options.connect_timeout);
    match url.options.number("connections")? {
        Some(0) => {
            let why = "there must be at least one";
            return Err(InvalidUrl::bad_value("connections", "0", why));
        }
        Some(most) => options.connections = usize::try_from(most).unwrap_or(usize::MAX).min(1000),
        None => {}
    }
    options.pin = url.options.flag("pin")?.unwrap_or(options.pin);
    Ok(())
}

/// A duration or, as in libpq, a number of seconds.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn connect_timeout(url: &mut StoreUrl) -> Result<Option<Duration>, InvalidUrl> {
    const NAME: &str = "connect_timeout";
    let seconds = url.options.text(NAME).and_then(|text| text.parse().ok());
    match seconds.filter(|seconds| *seconds > 0) {
        Some(seconds) => Ok(Some(Duration::from_secs(seconds))),
        None => url.options.positive_duration(NAME),
    }
}

/// Takes the path of a Unix socket: the value of `option`, or a host such as `%2Frun%2Fpostgresql`.
#[cfg(any(feature = "mysql", feature = "postgres"))]
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

/// Takes how waiters are woken.
#[cfg(feature = "postgres")]
pub(crate) fn wake(url: &mut StoreUrl, options: &mut Options) -> Result<(), InvalidUrl> {
    use crate::config::Wake;

    let wakes = [("push", Wake::Push), ("poll", Wake::Poll)];
    options.wake = url.options.choice("wake", &wakes)?.unwrap_or(options.wake);
    Ok(())
}
