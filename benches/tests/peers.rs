//! The locks of others, as programs that take the same orders as our workers.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use conformance_tests::foreign::{RedisPy, directory, missing};
use conformance_tests::servers::{RedisServer, guardian};
use conformance_tests::{Failure, Ground, Outcome, ensure};
use lockkit_benches::report::{Topic, Unit};
use lockkit_benches::{Bench, Program};

fn main() -> ExitCode {
    if let Some(code) = guardian::serve().or_else(lockkit_benches::serve) {
        return code;
    }
    let absent = missing(RedisServer::PROGRAM).or_else(RedisPy::missing);
    Ground::new("bench-redis-py", absent)
        .trial(redis_py_takes_turns_beside_ours)
        .run(1)
}

fn failure(error: lockkit_benches::Failure) -> Failure {
    Failure::new(error.to_string())
}

async fn redis_py_takes_turns_beside_ours() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/redis_py.py");
    let python = Program::foreign("python3", [program]);
    let python = python.with_env("PYTHONPATH", directory().join("redis-py"));
    let facts = vec![("lock of".to_owned(), "redis-py".to_owned())];
    let bench = Bench::new([server.url()], Program::own().map_err(failure)?)
        .peer("redis-py", server.url(), python, facts)
        .topics([Topic::Crowd])
        .rounds(3)
        .time(Duration::from_secs(5));
    let report = bench.run().await.map_err(failure)?;
    ensure(report.failures.is_empty(), report.failures.join("; "))?;
    let total = |store: &str| {
        let figures = report.figures.iter().filter(|figure| figure.store == store);
        let rates = figures.filter(|figure| figure.unit == Unit::PerSecond);
        rates.map(|figure| figure.lock.median).sum::<f64>()
    };
    let (ours, theirs) = (total("redis"), total("redis-py"));
    ensure(theirs > 0.0, "redis-py had no turns")?;
    ensure(ours > 0.0, "ours had no turns")?;
    let told = report.stores.iter().any(|store| {
        store.label == "redis-py" && store.facts.iter().any(|(_, value)| value == "redis-py")
    });
    ensure(told, "the report does not say whose lock it is")
}
