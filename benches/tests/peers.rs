//! The locks of others, each beside ours on a real server: that it takes turns, and that it is said whose it
//! is.
#![expect(
    clippy::print_stdout,
    reason = "the figures are part of what is tested"
)]

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use conformance_tests::foreign::{Turns, missing};
use conformance_tests::servers::{
    EtcdCluster, PostgresPrograms, PostgresServer, RedisServer, RedlockServers, ZkCommand, ZkServer,
};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_bench::report::{Figure, LOCK_OF, Topic};
use lockkit_bench::{Bench, Peer, Program, Report};

fn main() -> ExitCode {
    lockkit_bench::serve().unwrap_or_else(|| TestSuite::main(2, tests))
}

fn tests() -> TestSuite {
    let redis = || missing(RedisServer::PROGRAM);
    let etcd = || missing(EtcdCluster::PROGRAM);
    let postgres = PostgresPrograms::system().missing();
    let suite = |missing| TestSuite::new("bench-peers", missing);
    suite(redis())
        .test(rslock)
        .test(rslock_on_a_majority)
        .and(suite(postgres).test(sqlx))
        .and(suite(etcd()).test(etcd_client))
        .and(suite(ZkServer::missing()).test(zookeeper_client))
        .and(foreign(redis(), "redis-py").test(redis_py))
        .and(foreign(redis(), "Redisson").test(redisson))
        .and(foreign(redis(), "Redisson RedLock").test(redisson_redlock))
        .and(foreign(redis(), "Redisson readers").test(redisson_readers))
        .and(foreign(redis(), "Redisson permits").test(redisson_permits))
        .and(foreign(redis(), "redsync").test(redsync))
        .and(foreign(redis(), "redsync on redlock").test(redsync_on_a_majority))
        .and(foreign(etcd(), "Go concurrency.Mutex").test(go_mutex))
        .and(foreign(ZkServer::missing(), "kazoo").test(kazoo))
        .and(foreign(ZkServer::missing(), "Curator").test(curator))
        .and(foreign(ZkServer::missing(), "Curator readers").test(curator_readers))
        .and(foreign(ZkServer::missing(), "Curator permits").test(curator_permits))
}

fn turns(label: &str) -> Outcome<Turns> {
    let found = Turns::all().into_iter().find(|it| it.label == label);
    found.ok_or_else(|| Failure::new(format!("there is no peer {label}")))
}

/// What comes over the network may be missing, as its own tests say.
fn foreign(server: Option<String>, label: &str) -> TestSuite {
    let absent = turns(label).map_or_else(|error| Some(error.to_string()), |it| it.missing);
    TestSuite::new("bench-peers", server).needing(absent)
}

fn failure(error: lockkit_bench::Failure) -> Failure {
    Failure::new(error.to_string())
}

async fn rslock() -> Outcome {
    let server = RedisServer::forgetful().await?;
    beside_ours(&server.url(), Whose::Crate(Peer::Rslock)).await
}

async fn rslock_on_a_majority() -> Outcome {
    on_redlock(Whose::Crate(Peer::Rslock)).await
}

async fn redisson_redlock() -> Outcome {
    on_redlock(Whose::Program(turns("Redisson RedLock")?)).await
}

async fn redsync_on_a_majority() -> Outcome {
    on_redlock(Whose::Program(turns("redsync on redlock")?)).await
}

async fn on_redlock(whose: Whose) -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    beside_ours(&format!("redlock://{}", servers.authority()), whose).await
}

async fn sqlx() -> Outcome {
    let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
    beside_ours(&server.url("postgres"), Whose::Crate(Peer::Sqlx)).await
}

async fn etcd_client() -> Outcome {
    on_etcd(Whose::Crate(Peer::EtcdClient)).await
}

async fn zookeeper_client() -> Outcome {
    on_zookeeper(Whose::Crate(Peer::ZookeeperClient)).await
}

async fn redis_py() -> Outcome {
    on_redis("redis-py").await
}

async fn redisson() -> Outcome {
    on_redis("Redisson").await
}

async fn redisson_readers() -> Outcome {
    on_redis("Redisson readers").await
}

async fn redisson_permits() -> Outcome {
    on_redis("Redisson permits").await
}

async fn redsync() -> Outcome {
    on_redis("redsync").await
}

async fn go_mutex() -> Outcome {
    on_etcd(Whose::Program(turns("Go concurrency.Mutex")?)).await
}

async fn kazoo() -> Outcome {
    on_zookeeper(Whose::Program(turns("kazoo")?)).await
}

async fn curator() -> Outcome {
    on_zookeeper(Whose::Program(turns("Curator")?)).await
}

async fn curator_readers() -> Outcome {
    on_zookeeper(Whose::Program(turns("Curator readers")?)).await
}

async fn curator_permits() -> Outcome {
    on_zookeeper(Whose::Program(turns("Curator permits")?)).await
}

async fn on_redis(label: &str) -> Outcome {
    let server = RedisServer::forgetful().await?;
    beside_ours(&server.url(), Whose::Program(turns(label)?)).await
}

async fn on_etcd(whose: Whose) -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let url = format!("etcd://127.0.0.1:{}", cluster.ports()[0]);
    beside_ours(&url, whose).await
}

async fn on_zookeeper(whose: Whose) -> Outcome {
    let server = ZkServer::start(&ZkCommand::system()).await?;
    beside_ours(&format!("zk://127.0.0.1:{}", server.port()), whose).await
}

enum Whose {
    Crate(Peer),
    Program(Turns),
}

impl Whose {
    fn label(&self) -> &'static str {
        match self {
            Self::Crate(peer) => peer.label(),
            Self::Program(turns) => turns.label,
        }
    }

    /// Whether its turns are hand-offs.
    fn excludes(&self) -> bool {
        match self {
            Self::Crate(_) => true,
            Self::Program(turns) => turns.mode.is_exclusive(),
        }
    }

    fn program(&self) -> Outcome<Program> {
        match self {
            Self::Crate(peer) => Program::peer(*peer).map_err(failure),
            Self::Program(turns) => program(turns),
        }
    }
}

fn program(turns: &Turns) -> Outcome<Program> {
    let words = turns.words.split_first();
    let (first, arguments) = words.ok_or_else(|| Failure::new("a program without a name"))?;
    let program = Program::foreign(first, arguments).in_mode(turns.mode);
    let variables = turns.environment.iter();
    Ok(variables.fold(program, |program, (name, value)| {
        program.with_env(name, value)
    }))
}

async fn beside_ours(url: &str, whose: Whose) -> Outcome {
    let (label, program) = (whose.label(), whose.program()?);
    let excludes = whose.excludes();
    let facts = vec![(LOCK_OF.to_owned(), "a version".to_owned())];
    let bench = Bench::new([url.to_owned()], Program::own().map_err(failure)?)
        .peer(label, url, program, facts)
        .topics([Topic::Peers])
        .rounds(2)
        .time(Duration::from_secs(3));
    let report = bench.run().await.map_err(failure)?;
    ensure(report.failures.is_empty(), report.failures.join("; "))?;
    let store = report.stores.iter().find(|store| store.label == label);
    let store = store.ok_or_else(|| Failure::new("the report does not name it"))?;
    let told = store
        .facts
        .iter()
        .any(|(name, value)| name == LOCK_OF && value == "a version");
    ensure(told, "the report does not say whose lock it is")?;
    let figures = figures(&report, label);
    let on = store.peer_on.clone().unwrap_or_default();
    let least = [
        ("1 alone", "cycles", 1.0),
        ("8 in 1 process", "turns", 1.0),
        ("8 in 1 process", "hand-offs", 0.5),
        ("8 in 4 processes", "turns", 1.0),
        ("8 in 4 processes", "hand-offs", 0.5),
    ];
    for (case, what, least) in least {
        if what == "hand-offs" && !excludes {
            continue;
        }
        let name = format!("{on}, {case}");
        let figure = figures.get(&(&*name, what));
        let figure = figure.ok_or_else(|| Failure::new(format!("no {what} of {name}")))?;
        // In the better of the rounds: a busy machine may leave one without any.
        let (theirs, ours) = (figure.lock.high, figure.bare.as_ref().map(|it| it.high));
        println!(
            "{label}, {name}: {what} {theirs:.1}/s, ours {:.1}/s",
            ours.unwrap_or(0.0)
        );
        let sound = theirs >= least && ours.is_some_and(|ours| ours >= least);
        ensure(
            sound,
            format!("{name}: {theirs} and {ours:?} {what} in a second"),
        )?;
        if what == "hand-offs" {
            let turns = figures
                .get(&(&*name, "turns"))
                .map_or(0.0, |it| it.lock.high);
            let few = theirs <= turns;
            ensure(few, format!("{name}: more hand-offs than {turns} turns"))?;
        }
    }
    let (page, table) = (report.to_page(), report.to_table());
    let shown =
        page.contains("theirs ÷ ours") && table.contains(&format!("{label}, {on}, 1 alone"));
    ensure(shown, "the forms of the report do not show it")
}

fn figures<'a>(report: &'a Report, label: &str) -> HashMap<(&'a str, &'a str), &'a Figure> {
    let of = report.figures.iter().filter(|figure| figure.store == label);
    of.map(|figure| ((&*figure.case, &*figure.what), figure))
        .collect()
}
