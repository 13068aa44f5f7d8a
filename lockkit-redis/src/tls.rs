//! TLS, always with aws-lc-rs as the provider of cryptography, whichever one the program installs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockkit_core::url::Tls;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Starts TLS on a socket to `host`, whose certificate the system or a file must trust.
pub(crate) async fn wrap(
    tls: &Tls,
    host: &str,
    socket: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let roots = roots(tls.trusted().map(PathBuf::as_path))?;
    let config =
        ClientConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
    let config = match tls.shown() {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
            let config = config.with_client_auth_cert(chain, key);
            config.map_err(|error| unusable(certificate, error))?
        }
    };
    let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    let connected = connector.connect(host, socket).await;
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::other("the server ended the TLS handshake: does this port speak TLS?")
        }
        _ => error,
    })
}

/// The certificates in a file, or those of the system.
fn roots(file: Option<&Path>) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = file {
        for certificate in certificates(path)? {
            let added = roots.add(certificate);
            added.map_err(|error| unusable(path, error))?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    // One certificate of the system that cannot be read is no reason to fail.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(io::Error::other("the system trusts no certificate at all"));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|error| unusable(path, error))?;
    if found.is_empty() {
        return Err(unusable(path, "there is no certificate in it"));
    }
    Ok(found)
}

/// A retry does not help: the same kind as for a certificate that is not trusted.
fn unusable(path: &Path, why: impl std::fmt::Display) -> io::Error {
    let text = format!("`{}` cannot be used: {why}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
