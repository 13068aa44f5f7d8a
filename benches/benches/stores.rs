//! All stores that can be had here, on servers of their own, beside the locks of others.
//!
//! `cargo bench -p lockkit-benches --all-features --bench stores` prints a table and writes
//! `target/bench/stores.json` and `stores.html`; `-- --time 60` measures longer, `-- --keep` also puts
//! the figures where `cargo x tables` takes those of the manual from. A server or a peer that
//! is not installed is named and left out; `cargo x setup` brings them.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints what it measured, and ends when something fails"
)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use conformance_tests::foreign::{RedisPy, directory, missing};
use conformance_tests::servers::{
    EtcdCluster, MysqlPrograms, MysqlServer, PostgresPrograms, PostgresServer, RedisServer,
    ZkCommand, ZkServer, guardian,
};
use lockkit_benches::{Bench, Program};

/// Enough for short runs; the first word after `--time` sets another.
const SECONDS: u64 = 15;

fn main() -> ExitCode {
    if let Some(code) = guardian::serve().or_else(lockkit_benches::serve) {
        return code;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(measure());
    ExitCode::SUCCESS
}

/// Says why something is left out.
fn here(name: &str, absent: Option<String>) -> bool {
    if let Some(why) = &absent {
        println!("{name} is left out: {why}");
    }
    absent.is_none()
}

async fn measure() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().display();
    let mut stores = vec![
        "memory:".to_owned(),
        format!("file:{at}/files"),
        format!("sqlite:{at}/locks.db"),
    ];
    // They live as long as this does.
    let (mut redis, mut postgres, mut mysql, mut etcd, mut zk) = (None, None, None, None, None);
    if here("redis", missing(RedisServer::PROGRAM)) {
        let server = redis.insert(RedisServer::forgetful().await.unwrap());
        stores.push(server.url());
    }
    let programs = PostgresPrograms::system();
    if here("postgres", programs.missing()) {
        let settings = ["fsync=on", "synchronous_commit=on"];
        let server = PostgresServer::start(&programs, &settings).await.unwrap();
        stores.push(postgres.insert(server).url("postgres"));
    }
    let programs = MysqlPrograms::mariadb();
    if here("mariadb", programs.missing()) {
        let server = MysqlServer::start(&programs, &[]).await.unwrap();
        let port = mysql.insert(server).port();
        stores.push(format!("mariadb=mysql://admin@127.0.0.1:{port}/mysql"));
    }
    if here("etcd", missing(EtcdCluster::PROGRAM)) {
        let guard = std::env::current_exe().unwrap();
        let cluster = etcd.insert(EtcdCluster::start(&guard, 1).await.unwrap());
        stores.push(format!("etcd://127.0.0.1:{}", cluster.ports()[0]));
    }
    if here("zookeeper", ZkServer::missing()) {
        let server = zk.insert(ZkServer::start(&ZkCommand::system()).await.unwrap());
        stores.push(format!("zk://127.0.0.1:{}", server.port()));
    }
    let mut bench = Bench::new(stores, Program::own().unwrap())
        .time(Duration::from_secs(seconds()))
        .delay(Some(Duration::from_millis(5)))
        .progress(true);
    if let Some(server) = &redis
        && here("redis-py", RedisPy::missing())
    {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/redis_py.py");
        let python = Program::foreign("python3", [program])
            .with_env("PYTHONPATH", directory().join("redis-py"));
        let package = include_str!("../../conformance-tests/interop/redis_py/requirements.txt");
        let facts = vec![("lock of".to_owned(), package.trim().to_owned())];
        bench = bench.peer("redis-py", server.url(), python, facts);
    }
    let report = bench.run().await.unwrap();
    println!("{}", report.to_table());
    let into = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    std::fs::create_dir_all(&into).unwrap();
    std::fs::write(into.join("stores.json"), report.to_json().unwrap()).unwrap();
    std::fs::write(into.join("stores.html"), report.to_page()).unwrap();
    if std::env::args().any(|word| word == "--keep") {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/stores.json");
        std::fs::write(results, report.to_json().unwrap()).unwrap();
    }
    println!("{} has the plots", into.join("stores.html").display());
}

fn seconds() -> u64 {
    let mut words = std::env::args().skip_while(|word| word != "--time");
    let seconds = words.nth(1).and_then(|word| word.parse().ok());
    seconds.unwrap_or(SECONDS)
}
