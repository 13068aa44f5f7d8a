//! Ports that are free.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// A port of the loopback address that nobody used a moment ago.
///
/// Somebody else may take it before the server does; start the server anew with another then.
///
/// # Errors
/// - [`io::Error`] if the system has none.
pub fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
