//! Where the data of servers and stores lie.

use std::fs;
use std::io;

use tempfile::TempDir;

/// Where data lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// In memory if the machine has plenty, otherwise with the temporary files. A disk that stalls for a
    /// second would be a fault that no test asked for.
    #[default]
    Memory,
    /// With the temporary files, usually on a disk: for measurements.
    Disk,
}

impl Storage {
    /// An empty directory. It is removed when the returned value is dropped.
    ///
    /// # Errors
    /// - That none can be made.
    pub fn directory(self) -> io::Result<TempDir> {
        match self {
            Self::Memory => memory().map_or_else(TempDir::new, Ok),
            Self::Disk => TempDir::new(),
        }
    }
}

/// A directory in memory; `None` where there is not plenty, or no such place.
fn memory() -> Option<TempDir> {
    /// In kB: enough for the data of all servers of a run, and for what runs beside them. All of them run at once.
    const PLENTY: u64 = 8 << 20;
    let facts = fs::read_to_string("/proc/meminfo").ok()?;
    let free = facts
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free: u64 = free.split_whitespace().next()?.parse().ok()?;
    if free < PLENTY {
        return None;
    }
    TempDir::new_in("/dev/shm").ok()
}
