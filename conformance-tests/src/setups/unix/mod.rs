//! The stores in files and on servers, which the suite runs on Unix only.

mod etcd;
mod file;
mod mysql;
mod pool;
mod postgres;
mod redis;
mod redis_cluster;
mod redis_proxy;
mod redis_sentinel;
mod redlock;
mod sql;
mod zk;

pub use etcd::EtcdSetup;
pub use file::FileSetup;
pub use mysql::MysqlSetup;
pub use postgres::PostgresSetup;
pub use redis::RedisSetup;
pub use redis_cluster::RedisClusterSetup;
pub use redis_proxy::RedisProxySetup;
pub use redis_sentinel::RedisSentinelSetup;
pub use redlock::RedlockSetup;
pub use sql::{SqlServer, SqlSetup};
pub use zk::ZkSetup;

use lockkit_core::Waiting;

use crate::foreign::Version;
use crate::namespace::Hook;
use crate::setup::Setup;
use crate::setups::InMode;

/// Every setup of these stores.
pub(super) fn all() -> impl Iterator<Item = Box<dyn Setup>> {
    let system: [Box<dyn Setup>; 28] = [
        Box::new(FileSetup::new()),
        Box::new(RedisSetup::fair()),
        Box::new(RedisSetup::barging()),
        Box::new(RedisSetup::poll()),
        Box::new(InMode::write(RedisSetup::fair())),
        Box::new(InMode::permit(RedisSetup::fair())),
        Box::new(RedisProxySetup::new()),
        Box::new(RedisSentinelSetup::new()),
        Box::new(RedisClusterSetup::new()),
        Box::new(RedlockSetup::new()),
        Box::new(EtcdSetup::single()),
        Box::new(EtcdSetup::cluster()),
        Box::new(InMode::write(EtcdSetup::single())),
        Box::new(InMode::permit(EtcdSetup::single())),
        Box::new(PostgresSetup::leases()),
        Box::new(InMode::permit(PostgresSetup::leases())),
        Box::new(PostgresSetup::pins()),
        Box::new(PostgresSetup::behind_pooler()),
        Box::new(PostgresSetup::newer()),
        Box::new(MysqlSetup::mariadb()),
        Box::new(InMode::permit(MysqlSetup::mariadb())),
        Box::new(MysqlSetup::mariadb_pins()),
        Box::new(MysqlSetup::mysql()),
        Box::new(MysqlSetup::mysql_pins()),
        Box::new(ZkSetup::one()),
        Box::new(ZkSetup::three()),
        Box::new(InMode::write(ZkSetup::one())),
        Box::new(InMode::permit(ZkSetup::one())),
    ];
    // Other versions of the servers.
    let redis = Version::redis().into_iter().map(RedisSetup::version);
    // The oldest, which has no sharded channels, and the other make of it.
    let clusters = Version::redis()
        .into_iter()
        .filter(|it| ["redis6", "valkey9"].contains(&it.name()));
    let zk = Version::zookeeper().into_iter().map(ZkSetup::version);
    let etcd = Version::etcd().into_iter().map(EtcdSetup::version);
    system
        .into_iter()
        .chain(redis.map(boxed))
        .chain(clusters.map(RedisClusterSetup::version).map(boxed))
        .chain(zk.map(boxed))
        .chain(etcd.map(boxed))
}

/// What can be done to a store on one server. Wake-ups can be lost only where it sends some.
fn hooks_of_server(waiting: Waiting) -> &'static [Hook] {
    let all = &[
        Hook::LosePushes,
        Hook::Url,
        Hook::Wipe,
        Hook::Restart,
        Hook::Freeze,
        Hook::Proxy,
        Hook::Residue,
    ];
    match waiting {
        Waiting::Push => all,
        _ => &all[1..],
    }
}

fn boxed(setup: impl Setup) -> Box<dyn Setup> {
    Box::new(setup)
}
