//! The setups of the stores that come with the core.

#[cfg(unix)]
mod etcd;
#[cfg(unix)]
mod file;
mod memory;
#[cfg(unix)]
mod mysql;
#[cfg(unix)]
mod postgres;
#[cfg(unix)]
mod redis;
#[cfg(unix)]
mod redis_proxy;
mod sqlite;
#[cfg(unix)]
mod zk;

#[cfg(unix)]
pub use etcd::EtcdSetup;
#[cfg(unix)]
pub use file::FileSetup;
pub use memory::MemorySetup;
#[cfg(unix)]
pub use mysql::MysqlSetup;
#[cfg(unix)]
pub use postgres::PostgresSetup;
#[cfg(unix)]
pub use redis::RedisSetup;
#[cfg(unix)]
pub use redis_proxy::RedisProxySetup;
pub use sqlite::SqliteSetup;
#[cfg(unix)]
pub use zk::ZkSetup;

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
        Box::new(EtcdSetup::cluster()),
        Box::new(SqliteSetup::new()),
        #[cfg(unix)]
        Box::new(PostgresSetup::leases()),
        #[cfg(unix)]
        Box::new(PostgresSetup::pins()),
        #[cfg(unix)]
        Box::new(PostgresSetup::pooler()),
        #[cfg(unix)]
        Box::new(PostgresSetup::newer()),
        #[cfg(unix)]
        Box::new(MysqlSetup::mariadb()),
        #[cfg(unix)]
        Box::new(MysqlSetup::mariadb_pins()),
        #[cfg(unix)]
        Box::new(MysqlSetup::mysql()),
        #[cfg(unix)]
        Box::new(MysqlSetup::mysql_pins()),
        #[cfg(unix)]
        Box::new(ZkSetup::one()),
        #[cfg(unix)]
        Box::new(ZkSetup::three()),
    ];
    #[cfg(unix)]
    let setups = setups.into_iter().chain(other_versions()).collect();
    setups
}

/// The servers of other versions than the system's.
#[cfg(unix)]
fn other_versions() -> impl Iterator<Item = Box<dyn Setup>> {
    use crate::foreign::{EtcdVersion, Version, ZkVersion};

    let redis = Version::all().into_iter();
    let redis = redis.map(|version| Box::new(RedisSetup::version(version)) as Box<dyn Setup>);
    let zk = ZkVersion::all().into_iter();
    let zk = zk.map(|version| Box::new(ZkSetup::version(version)) as Box<dyn Setup>);
    let etcd = EtcdVersion::all().into_iter();
    let etcd = etcd.map(|version| Box::new(EtcdSetup::version(version)) as Box<dyn Setup>);
    redis.chain(zk).chain(etcd)
}
