//! TLS options of a store: which certificates to trust, and which one to present.

use std::path::PathBuf;

use super::{InvalidUrl, StoreUrl};

/// The files of certificates that the connections of a store use.
///
/// Without any, the system says which servers to trust, and the client shows no certificate.
///
/// # Examples
/// ```
/// use lockkit_core::url::Tls;
///
/// let tls = Tls::new().ca("/etc/ca.pem").identity("/etc/client.pem", "/etc/client.key");
/// # let _ = tls;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "it is an option of a store"]
pub struct Tls {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// TLS to a server that the system trusts.
    pub const fn new() -> Self {
        Self {
            ca: None,
            identity: None,
        }
    }

    /// Trusts the certificates in a file instead of the system's.
    pub fn ca(mut self, certificates: impl Into<PathBuf>) -> Self {
        self.ca = Some(certificates.into());
        self
    }

    /// Shows a certificate to servers that ask for one: its file, with its chain, and the file of its key.
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The file of certificates to trust instead of the system's, for a store.
    #[must_use]
    pub fn trusted(&self) -> Option<&PathBuf> {
        self.ca.as_ref()
    }

    /// The files of the client's certificate and of its key, for a store.
    #[must_use]
    pub fn shown(&self) -> Option<&(PathBuf, PathBuf)> {
        self.identity.as_ref()
    }
}

impl StoreUrl {
    /// Takes `ca`, `cert` and `key` if the scheme is `secure`; `None` if it is another. `supported` says
    /// whether the store was built with TLS.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if it was not, if another scheme has one of the options, or if `cert` is given without `key` or
    ///   the other way round.
    pub fn tls(&mut self, secure: &str, supported: bool) -> Result<Option<Tls>, InvalidUrl> {
        if self.scheme != secure {
            for option in ["ca", "cert", "key"] {
                if let Some(file) = self.options.text(option) {
                    let why = format!("it is for TLS, which the scheme `{secure}` has");
                    return Err(InvalidUrl::bad_value(option, &file, why));
                }
            }
            return Ok(None);
        }
        if !supported {
            return Err(InvalidUrl::feature_off(&self.scheme, "tls"));
        }
        let ca = self.options.text("ca").map(PathBuf::from);
        let identity = match (self.options.text("cert"), self.options.text("key")) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            (Some(cert), None) => {
                let why = "give the file of its key as well, as `key=/path.pem`";
                return Err(InvalidUrl::bad_value("cert", &cert, why));
            }
            (None, Some(key)) => {
                let why = "give the file of its certificate as well, as `cert=/path.pem`";
                return Err(InvalidUrl::bad_value("key", &key, why));
            }
        };
        Ok(Some(Tls { ca, identity }))
    }

    /// The user and the password, both or neither; `expected` is as for [`expect`](Self::expect).
    ///
    /// # Errors
    /// - [`InvalidUrl`] if only one of them is given.
    pub fn credentials(
        &self,
        expected: &'static str,
    ) -> Result<Option<(String, String)>, InvalidUrl> {
        match (self.user(), self.password()) {
            (Some(user), Some(password)) => Ok(Some((user.to_owned(), password.to_owned()))),
            (None, None) => Ok(None),
            _ => Err(InvalidUrl::shape(&self.scheme, expected)),
        }
    }
}
