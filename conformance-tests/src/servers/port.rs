//! Free ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that systems give to outgoing connections: one of those could take a port between
/// the look and the start of the server, and the tests make many.
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// A port of the loopback address that was unused a moment ago, and that this process did not get
/// before.
///
/// Another process may take it before the server does: then the server ends, and
/// [`ServerProcess::ready`](super::ServerProcess::ready) fails.
///
/// # Errors
/// - [`io::Error`] if none is free.
pub fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Far apart for processes that run at the same time.
    let start = u64::from(std::process::id()) * 7919 % u64::from(COUNT);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..COUNT {
        let step = u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let offset = (start + step) % u64::from(COUNT);
        let port = FIRST + u16::try_from(offset).unwrap_or(0);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Such a port, so that the one `apart` above it is one as well.
pub(super) fn free_pair(apart: u16) -> io::Result<[u16; 2]> {
    loop {
        let pair = free_port().map(|port| [port, port + apart])?;
        if pair[1] < FIRST + COUNT && TcpListener::bind((Ipv4Addr::LOCALHOST, pair[1])).is_ok() {
            return Ok(pair);
        }
    }
}

/// The hosts in a URL of servers with these ports.
pub(super) fn local_hosts(ports: impl IntoIterator<Item = u16>) -> String {
    let hosts = ports.into_iter().map(|port| format!("127.0.0.1:{port}"));
    hosts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_no_ports_of_outgoing_connections() {
        let ports: Vec<_> = (0..100).map(|_| free_port().unwrap()).collect();
        let mut unique = ports.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ports.len());
        assert!(
            ports
                .iter()
                .all(|&port| (FIRST..FIRST + COUNT).contains(&port))
        );
    }
}
