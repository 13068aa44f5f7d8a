//! All installed stores, on their own servers, compared with other lock libraries.
//!
//! `cargo bench -p lockkit-bench --all-features --bench stores` prints a table and writes
//! `target/bench/stores.json` and `stores.html`; `-- --time 60` measures longer, `-- --keep` also saves
//! the figures from which `cargo x tables` makes the tables of the manual. The report names servers and peers
//! that are not installed; `cargo x setup` installs them.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints what it measured, and ends when something fails"
)]

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use conformance_tests::Storage;
use conformance_tests::foreign::{Turns, missing};
use conformance_tests::servers::{
    EtcdCluster, EtcdCommand, MysqlPrograms, MysqlServer, PostgresPrograms, PostgresServer,
    RedisServer, RedlockServers, ZkCommand, ZkServer, guardian,
};
use lockkit_bench::report::{LOCK_OF, Report};
use lockkit_bench::{Bench, Peer, Program};

/// The default; the word after `--time` sets another.
const SECONDS: u64 = 15;

fn main() -> ExitCode {
    if let Some(code) = guardian::serve().or_else(lockkit_bench::serve) {
        return code;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime.block_on(measure());
    println!("{}", report.to_table());
    save(&report);
    match report.failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Also among the results, if everything was measured.
fn save(report: &Report) {
    let into = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    std::fs::create_dir_all(&into).unwrap();
    std::fs::write(into.join("stores.json"), report.to_json().unwrap()).unwrap();
    std::fs::write(into.join("stores.html"), report.to_page()).unwrap();
    let keep = std::env::args().any(|word| word == "--keep");
    if keep && report.failures.is_empty() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/stores.json");
        std::fs::write(results, report.to_json().unwrap()).unwrap();
    }
    println!("{} has the plots", into.join("stores.html").display());
}

/// What is not installed, and why.
#[derive(Debug, Default)]
struct LeftOut(Vec<String>);

impl LeftOut {
    fn here(&mut self, name: &str, absent: Option<String>) -> bool {
        if let Some(why) = &absent {
            let line = format!("{name} is left out: {why}");
            println!("{line}");
            self.0.push(line);
        }
        absent.is_none()
    }
}

/// Adds the locks of other libraries to the stores on which they work.
fn with_peers(mut bench: Bench, stores: &[String], left_out: &mut LeftOut) -> Bench {
    let on = |scheme: &str| {
        let begins = format!("{scheme}://");
        stores.iter().find(|url| url.starts_with(&begins)).cloned()
    };
    let facts = |version: String| vec![(LOCK_OF.to_owned(), version)];
    for peer in Peer::ALL {
        for url in peer.schemes().iter().filter_map(|scheme| on(scheme)) {
            let (library, version) = (peer.label(), peer.version());
            let label = match url.split_once(':') {
                Some(("redlock", _)) => format!("{library} on redlock"),
                _ => library.to_owned(),
            };
            let program = Program::peer(peer).unwrap();
            bench = bench.peer(label, url, program, facts(format!("{library} {version}")));
        }
    }
    for turns in Turns::all() {
        let Some(url) = on(turns.scheme) else {
            continue;
        };
        if left_out.here(turns.label, turns.missing) {
            let words: Vec<&OsStr> = turns.words.iter().map(|word| &**word).collect();
            let program = Program::foreign(words[0], &words[1..]).in_mode(turns.mode);
            let program = turns
                .environment
                .iter()
                .fold(program, |program, (name, value)| {
                    program.with_env(name, value)
                });
            bench = bench.peer(turns.label, url, program, facts(turns.version));
        }
    }
    bench
}

async fn measure() -> Report {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().display();
    let mut stores = vec![
        "memory:".to_owned(),
        format!("file:{at}/files"),
        format!("sqlite:{at}/locks.db"),
    ];
    let mut left_out = LeftOut::default();
    // The servers run until the end of this function.
    let (mut redis, mut redlock, mut postgres, mut mysql, mut etcd, mut zk) =
        (None, None, None, None, None, None);
    if left_out.here("redis", missing(RedisServer::PROGRAM)) {
        let server = redis.insert(RedisServer::forgetful().await.unwrap());
        stores.push(server.url());
        let nodes = redlock.insert(RedlockServers::forgetful().await.unwrap());
        stores.push(format!("redlock://{}", nodes.authority()));
    }
    let programs = PostgresPrograms::system().storage(Storage::Disk);
    if left_out.here("postgres", programs.missing()) {
        let settings = ["fsync=on", "synchronous_commit=on"];
        let server = PostgresServer::start(&programs, &settings).await.unwrap();
        stores.push(postgres.insert(server).url("postgres"));
    }
    let programs = MysqlPrograms::mariadb().storage(Storage::Disk);
    if left_out.here("mariadb", programs.missing()) {
        let server = MysqlServer::start(&programs, &[]).await.unwrap();
        let port = mysql.insert(server).port();
        stores.push(format!("mariadb=mysql://admin@127.0.0.1:{port}/mysql"));
    }
    if left_out.here("etcd", missing(EtcdCluster::PROGRAM)) {
        let command = EtcdCommand::system().storage(Storage::Disk);
        let cluster = etcd.insert(EtcdCluster::start(&command, 1).await.unwrap());
        stores.push(format!("etcd://127.0.0.1:{}", cluster.ports()[0]));
    }
    if left_out.here("zookeeper", ZkServer::missing()) {
        let command = ZkCommand::system().storage(Storage::Disk);
        let server = zk.insert(ZkServer::start(&command).await.unwrap());
        stores.push(format!("zk://127.0.0.1:{}", server.port()));
    }
    let mut bench = Bench::new(stores.clone(), Program::own().unwrap())
        .time(Duration::from_secs(seconds()))
        .delay(Some(Duration::from_millis(5)))
        .progress(true);
    bench = with_peers(bench, &stores, &mut left_out);
    for line in left_out.0 {
        bench = bench.left_out(line);
    }
    bench.run().await.unwrap()
}

fn seconds() -> u64 {
    let mut words = std::env::args().skip_while(|word| word != "--time");
    let seconds = words.nth(1).and_then(|word| word.parse().ok());
    seconds.unwrap_or(SECONDS)
}
