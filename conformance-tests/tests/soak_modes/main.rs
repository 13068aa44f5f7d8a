//! Processes in random modes on each kind of server: killed and stopped at random, while servers are restarted, replaced
//! or frozen.
//!
//! It takes ten seconds; `LOCKKIT_SOAK=60 cargo test -p conformance-tests --test soak_modes` gives it
//! a minute.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod crowd;
mod trial;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::missing;
use conformance_tests::servers::{EtcdCluster, PostgresPrograms, RedisServer, ZkServer};

fn main() -> ExitCode {
    TestSuite::main(4, tests)
}

fn tests() -> TestSuite {
    let postgres = PostgresPrograms::system().missing();
    let redis = TestSuite::new("modes-on-redis", missing(RedisServer::PROGRAM));
    let etcd = TestSuite::new("modes-on-etcd", missing(EtcdCluster::PROGRAM));
    let zk = TestSuite::new("modes-on-zk", ZkServer::missing());
    let postgres = TestSuite::new("modes-on-postgres", postgres);
    redis
        .test(trial::holders_fit_on_redis)
        .test(trial::holders_fit_behind_sentinels)
        .test(trial::holders_fit_in_a_cluster)
        .test(trial::holders_fit_in_a_redlock)
        .and(etcd.test(trial::holders_fit_on_etcd))
        .and(zk.test(trial::holders_fit_on_zk))
        .and(postgres.test(trial::holders_fit_on_postgres))
}
