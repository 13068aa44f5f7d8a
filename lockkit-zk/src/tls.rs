//! The files of TLS.

use std::fs;
use std::path::Path;

use zookeeper_client::{Error, TlsOptions};

use crate::config::ZkStoreBuilder;

/// Reads them anew for each session, so that certificates can be renewed.
pub(crate) fn options(ca: &Path, config: &ZkStoreBuilder) -> Result<TlsOptions, Error> {
    let options = TlsOptions::new().with_pem_ca(&read(ca)?)?;
    match &config.identity {
        Some((certificate, key)) => options.with_pem_identity(&read(certificate)?, &read(key)?),
        None => Ok(options),
    }
}

fn read(path: &Path) -> Result<String, Error> {
    // The library has no error for files, and this one is no secret.
    fs::read_to_string(path)
        .map_err(|error| Error::UnexpectedError(format!("{}: {error}", path.display())))
}
