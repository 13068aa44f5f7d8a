//! TLS, always with the same provider of cryptography, whatever the program has installed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::stream::Stream;

/// Speaks TLS on a socket to `host`, whose certificate the system or `ca` must vouch for.
pub(crate) async fn wrap(ca: Option<&Path>, host: &str, socket: TcpStream) -> io::Result<Stream> {
    let roots = match ca {
        Some(path) => from_file(path)?,
        None => from_system()?,
    };
    let config =
        ClientConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
    let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    Ok(Box::pin(connector.connect(host, socket).await?))
}

fn from_file(path: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(io::Error::other)? {
        let certificate = certificate.map_err(io::Error::other)?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    Ok(roots)
}

fn from_system() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // A certificate of the system that cannot be read is not worth a failure.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(io::Error::other("the system trusts no certificate at all"));
    }
    Ok(roots)
}
