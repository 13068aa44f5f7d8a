//! The URLs of stores: one grammar for all, read here and understood by each store.
//!
//! ```text
//! scheme:path?options
//! scheme://user:password@host:port,host:port/path?options
//! ```
//!
//! User, password, hosts, path and the values of options are percent-decoded; a `+` is a `+`.
//! Secrets are never shown: neither [`StoreUrl`] nor [`InvalidUrl`] repeats the user of a URL with a scheme, a password or
//! the value of an option that it could not read as something harmless. INV-14.

mod duration;
mod invalid;
mod options;
mod parse;
mod percent;
mod tls;

use std::fmt;

pub use duration::{InvalidDuration, format_duration, parse_duration};
pub use invalid::InvalidUrl;
pub use options::Options;
#[doc(hidden)]
pub use percent::percent_decode;
pub use tls::Tls;

/// A store URL in its parts.
///
/// # Examples
/// ```
/// use lockkit_core::url::StoreUrl;
///
/// let url: StoreUrl = "etcd://app:s3cret@h1:2379,h2/locks?ttl=30s".parse()?;
/// assert_eq!(url.scheme(), "etcd");
/// assert_eq!(url.user(), Some("app"));
/// assert_eq!(url.hosts()[1].name(), "h2");
/// assert_eq!(url.path(), "/locks");
/// assert_eq!(url.to_string(), "etcd://***@h1:2379,h2/locks?ttl=***");
/// # Ok::<(), lockkit_core::url::InvalidUrl>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    /// Whether `//` follows the scheme.
    authority: bool,
    hosts: Vec<Host>,
    path: String,
    /// What follows the `?`.
    pub options: Options,
}

/// One host of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    /// Its name or address, an IPv6 address without brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its port, if one is given.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => f.write_str(&host_and_port(&self.name, port)),
            None if self.name.contains(':') => write!(f, "[{}]", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A host, or the directory of a server's socket, with the port. An IPv6 address has brackets then.
#[must_use]
pub fn host_and_port(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('/') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

impl StoreUrl {
    /// The part before the first `:`, in lowercase, and by one name for each store: `postgres` for
    /// `postgresql`, `mysql` for `mariadb`, `redis`, `rediss` and `redis+unix` for `valkey`, `valkeys`
    /// and `unix`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, if one is given.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, if one is given. Keep it out of messages.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The hosts, in order; empty if none is given.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// What follows the hosts or, without `//`, the scheme. With its leading `/` if it has one.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether it has neither hosts nor a user or password.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.hosts.is_empty() && self.user.is_none() && self.password.is_none()
    }

    /// Checks the parts that a store needs or cannot use; `expected` ends the sentence "a URL of the
    /// scheme `x` ..." and says what to write.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if `fits` is false.
    pub fn expect(&self, fits: bool, expected: &'static str) -> Result<(), InvalidUrl> {
        if fits {
            return Ok(());
        }
        Err(InvalidUrl::shape(&self.scheme, expected))
    }
}

/// The schemes whose path is that of a file: they have no password.
const FILES: [&str; 2] = ["file", "sqlite"];

/// Writes the URL without user, password and the values of options.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if self.authority {
            f.write_str("//")?;
        }
        if self.user.is_some() || self.password.is_some() {
            f.write_str("***@")?;
        }
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        // With a slash too many, or one too few, a user and a password come into the path.
        let names_file = FILES.contains(&&*self.scheme);
        match self.path.rsplit_once('@') {
            Some((_, path)) if !names_file => write!(f, "{}***@{path}", hosts.join(","))?,
            _ => write!(f, "{}{}", hosts.join(","), self.path)?,
        }
        for (index, name) in self.options.names().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(f, "{mark}{name}=***")?;
        }
        Ok(())
    }
}

/// As `Display`.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreUrl")
            .field(&format_args!("{self}"))
            .finish()
    }
}
