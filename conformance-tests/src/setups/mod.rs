//! The setups of the stores that come with lockkit.

mod in_mode;
mod memory;
mod pauses;
mod sqlite;
#[cfg(unix)]
mod unix;

pub use in_mode::InMode;
pub use memory::MemorySetup;
pub use sqlite::SqliteSetup;
#[cfg(unix)]
pub use unix::*;

use crate::setup::Setup;

/// Every setup that this crate knows, whether it can run here or not.
#[must_use]
pub fn all() -> Vec<Box<dyn Setup>> {
    let mut setups: Vec<Box<dyn Setup>> = vec![
        Box::new(MemorySetup::leases()),
        Box::new(MemorySetup::sessions()),
        Box::new(MemorySetup::barging()),
        Box::new(MemorySetup::poll()),
        Box::new(InMode::write(MemorySetup::leases())),
        Box::new(InMode::permit(MemorySetup::leases())),
        Box::new(InMode::permit(MemorySetup::barging())),
        Box::new(SqliteSetup::new()),
        Box::new(InMode::permit(SqliteSetup::new())),
    ];
    #[cfg(unix)]
    setups.extend(unix::all());
    setups
}
