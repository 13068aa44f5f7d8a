//! Certificates of our own making, for servers and clients with TLS.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::failure::{Outcome, ensure};

/// A directory with two authorities that do not know each other, and what the first one vouches for:
/// `ca.crt` and `other.crt`, a server's `server.crt` with its `server.key` and both in `server.p12`,
/// whose password is [`Certificates::PASSWORD`], and clients' `client.crt` and `stranger.crt` with
/// their keys, of which the other authority has made the latter.
#[derive(Debug)]
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Opens `server.p12`.
    pub const PASSWORD: &'static str = "changeit";

    /// Makes them with `openssl`.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it is not there or fails.
    pub fn make() -> Outcome<Self> {
        let directory = TempDir::new()?;
        let at = directory.path();
        std::fs::write(
            at.join("names"),
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        )?;
        for authority in ["ca", "other"] {
            openssl(
                at,
                &format!(
                    "req -x509 -newkey rsa:2048 -nodes -keyout {authority}.key -out {authority}.crt -days 2 -subj /CN={authority}"
                ),
            )?;
        }
        for (name, subject, authority) in [
            ("server", "localhost", "ca"),
            ("client", "app", "ca"),
            ("stranger", "app", "other"),
        ] {
            openssl(
                at,
                &format!(
                    "req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={subject}"
                ),
            )?;
            openssl(
                at,
                &format!(
                    "x509 -req -in {name}.csr -CA {authority}.crt -CAkey {authority}.key -CAcreateserial -out {name}.crt -days 2 -extfile names"
                ),
            )?;
        }
        openssl(
            at,
            &format!(
                "pkcs12 -export -in server.crt -inkey server.key -out server.p12 -passout pass:{}",
                Self::PASSWORD
            ),
        )?;
        Ok(Self { directory })
    }

    /// The path of one of the files.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// The options with which Redis serves TLS at a port, beside plain connections, which the tests use themselves.
    pub(super) fn of_redis(&self, port: u16) -> Vec<[String; 2]> {
        let path = |file| self.path(file).display().to_string();
        let options = [
            ("tls-port", port.to_string()),
            ("tls-cert-file", path("server.crt")),
            ("tls-key-file", path("server.key")),
            ("tls-ca-cert-file", path("ca.crt")),
            ("tls-auth-clients", "no".to_owned()),
            ("tls-replication", "yes".to_owned()),
        ];
        options.map(|(name, value)| [name.to_owned(), value]).into()
    }
}

fn openssl(directory: &Path, words: &str) -> Outcome {
    let done = Command::new("openssl")
        .args(words.split(' '))
        .current_dir(directory)
        .stderr(Stdio::null())
        .status()?;
    ensure(done.success(), words)
}
