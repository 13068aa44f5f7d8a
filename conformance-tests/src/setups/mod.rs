//! The setups of the stores that come with the core.

#[cfg(unix)]
mod etcd;
#[cfg(unix)]
mod file;
mod memory;
#[cfg(unix)]
mod redis;
#[cfg(unix)]
mod redis_proxy;

#[cfg(unix)]
pub use etcd::EtcdSetup;
#[cfg(unix)]
pub use file::FileSetup;
pub use memory::MemorySetup;
#[cfg(unix)]
pub use redis::RedisSetup;
#[cfg(unix)]
pub use redis_proxy::RedisProxySetup;

use crate::setup::Setup;

/// Every setup that this crate knows, whether it can run here or not.
#[must_use]
pub fn all() -> Vec<Box<dyn Setup>> {
    let setups: Vec<Box<dyn Setup>> = vec![
        Box::new(MemorySetup::leases()),
        Box::new(MemorySetup::sessions()),
        Box::new(MemorySetup::barging()),
        Box::new(MemorySetup::poll()),
        #[cfg(unix)]
        Box::new(FileSetup::new()),
        #[cfg(unix)]
        Box::new(RedisSetup::fair()),
        #[cfg(unix)]
        Box::new(RedisSetup::barging()),
        #[cfg(unix)]
        Box::new(RedisSetup::poll()),
        #[cfg(unix)]
        Box::new(RedisProxySetup::new()),
        #[cfg(unix)]
        Box::new(EtcdSetup::single()),
        #[cfg(unix)]
        Box::new(EtcdSetup::lease_per_hold()),
        #[cfg(unix)]
        Box::new(EtcdSetup::cluster()),
    ];
    #[cfg(unix)]
    let versions = crate::foreign::Version::all().into_iter();
    #[cfg(unix)]
    let versions = versions.map(|version| Box::new(RedisSetup::version(version)) as Box<dyn Setup>);
    #[cfg(unix)]
    let setups = setups.into_iter().chain(versions).collect::<Vec<_>>();
    #[cfg(unix)]
    let versions = crate::foreign::EtcdVersion::all().into_iter();
    #[cfg(unix)]
    let versions = versions.map(|version| Box::new(EtcdSetup::version(version)) as Box<dyn Setup>);
    #[cfg(unix)]
    let setups = setups.into_iter().chain(versions).collect();
    setups
}
