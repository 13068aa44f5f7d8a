//! Real stores, measured for a short while: the figures are not judged here, but that they are there, and
//! those that do not depend on the machine.

use std::process::ExitCode;
use std::time::Duration;

use conformance_tests::foreign::missing;
use conformance_tests::servers::RedisServer;
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_bench::report::{Figure, Topic};
use lockkit_bench::{Bench, Program, Report, Side};

fn main() -> ExitCode {
    lockkit_bench::serve().unwrap_or_else(|| TestSuite::main(1, tests))
}

fn tests() -> TestSuite {
    TestSuite::new("bench", missing(RedisServer::PROGRAM))
        .test(every_part_is_measured_on_every_store)
        .test(what_takes_too_long_has_fewer_rounds)
        .test(a_cycle_far_away_is_two_round_trips)
        .test(a_section_far_away_is_two_round_trips)
        .test(nothing_is_left_at_the_store)
        .test(a_store_that_is_not_there_is_an_error_without_secrets)
}

fn failure(error: lockkit_bench::Failure) -> Failure {
    Failure::new(error.to_string())
}

async fn run(bench: Bench) -> Outcome<Report> {
    bench.run().await.map_err(failure)
}

fn bench(stores: impl IntoIterator<Item = String>) -> Outcome<Bench> {
    let bench = Bench::new(stores, Program::own().map_err(failure)?);
    Ok(bench.rounds(3).time(Duration::from_secs(2)).holds(1000))
}

fn of<'a>(report: &'a Report, topic: Topic, store: &str) -> Vec<&'a Figure> {
    let figures = report.figures.iter();
    let figures = figures.filter(|figure| figure.topic == topic && figure.store == store);
    figures.collect()
}

async fn every_part_is_measured_on_every_store() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let dir = tempfile::tempdir()?;
    let file = format!("file:{}", dir.path().display());
    let stores = ["memory:".to_owned(), file, format!("here={}", server.url())];
    let report = run(bench(stores)?).await?;
    ensure(report.failures.is_empty(), report.failures.join("; "))?;
    let here = [("memory", false), ("file", true), ("here", true)];
    for (store, shared) in here {
        let counts = [
            (Topic::Solo, 2),
            (Topic::Throughput, 3),
            // Four figures for each crowd; memory is not shared by processes.
            (Topic::Crowd, if shared { 24 } else { 12 }),
            (Topic::Names, 2),
            // Three figures for each crowd, which a file does not have, and two for the names.
            (Topic::Modes, if store == "file" { 2 } else { 8 }),
            // Three figures for one contender, four for more.
            (Topic::Sections, if store == "here" { 15 } else { 0 }),
            (Topic::Recovery, usize::from(shared)),
            (Topic::Holds, 5),
        ];
        for (topic, count) in counts {
            let found = of(&report, topic, store);
            let message = format!("{store}: {} figures of {topic:?}", found.len());
            ensure(found.len() == count, message)?;
            for figure in found {
                let low = figure.lock.low;
                let sound = low.is_finite() && low >= 0.0;
                ensure(sound, format!("{store}: {} is {low}", figure.what))?;
            }
        }
        for curve in report.curves.iter().filter(|curve| curve.store == store) {
            ensure(curve.count > 0, format!("{store}: an empty curve"))?;
        }
    }
    let sides = |side| report.curves.iter().any(|curve| curve.side == side);
    ensure(
        sides(Side::Lock) && sides(Side::Bare),
        "a side has no latencies",
    )?;
    // A killed holder's lock is free when its lease ends, and not before.
    let recovery = of(&report, Topic::Recovery, "here")[0];
    let waited = recovery.lock.median;
    ensure(
        (0.5..3.0).contains(&waited),
        format!("{waited} s after a kill"),
    )?;
    forms_are_whole(&report)
}

/// The report as JSON and as a table.
fn forms_are_whole(report: &Report) -> Outcome {
    let again = Report::from_json(&report.to_json().map_err(failure)?).map_err(failure)?;
    ensure(
        again.figures.len() == report.figures.len(),
        "JSON lost figures",
    )?;
    let table = report.to_table();
    let rows = [
        "64 in 4 processes",
        "8 readers",
        "4 names",
        "kill -9",
        "1000 holds",
        "here",
    ];
    for row in rows {
        ensure(
            table.contains(row),
            format!("`{row}` is missing in\n{table}"),
        )?;
    }
    Ok(())
}

async fn what_takes_too_long_has_fewer_rounds() -> Outcome {
    let bench = bench(["memory:".to_owned()])?.topics([Topic::Solo]);
    let report = run(bench.rounds(9).limit(Duration::ZERO)).await?;
    let rounds = report.method.rounds;
    ensure(rounds == 3, format!("{rounds} rounds"))?;
    let measured = report.figures.iter().map(|it| it.lock.rounds.len()).max();
    ensure(measured == Some(3), format!("{measured:?} times"))?;
    let table = report.to_table();
    ensure(table.contains("6 of 9 rounds"), table)
}

async fn a_cycle_far_away_is_two_round_trips() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let bench = bench([server.url()])?.topics([Topic::Distance]);
    let report = run(bench.delay(Some(Duration::from_millis(5)))).await?;
    ensure(report.failures.is_empty(), report.failures.join("; "))?;
    let figures = of(&report, Topic::Distance, "redis");
    let find = |what: &str| {
        let found = figures.iter().find(|figure| figure.what.ends_with(what));
        found.map(|figure| (figure.lock.median, figure.bare.as_ref().map(|it| it.median)))
    };
    let counted = find("counted");
    ensure(
        counted == Some((2.0, Some(2.0))),
        format!("{counted:?} round trips were counted"),
    )?;
    let Some((timed, _)) = find("by time") else {
        return Err(Failure::new("no time was measured"));
    };
    // A busy machine adds to the time, nothing takes from it.
    ensure(timed >= 1.99, format!("{timed} round trips by time"))?;
    ensure(
        figures.iter().any(|figure| figure.what == "hand-offs"),
        "no contention was measured",
    )
}

async fn a_section_far_away_is_two_round_trips() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let bench = bench([server.url()])?.topics([Topic::Sections]);
    let report = run(bench.rounds(1).delay(Some(Duration::from_millis(5)))).await?;
    ensure(report.failures.is_empty(), report.failures.join("; "))?;
    let figures = of(&report, Topic::Sections, "redis");
    let counted = figures
        .iter()
        .find(|figure| figure.case == "1 alone, delayed" && figure.what.starts_with("round trips"));
    let counted =
        counted.map(|figure| (figure.lock.median, figure.bare.as_ref().map(|it| it.median)));
    ensure(
        counted == Some((2.0, Some(2.0))),
        format!("{counted:?} round trips were counted"),
    )
}

async fn nothing_is_left_at_the_store() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let topics = [Topic::Throughput, Topic::Crowd, Topic::Sections];
    run(bench([server.url()])?.topics(topics)).await?;
    let keys: Vec<String> = server.run(&["KEYS", "*"]).await?;
    ensure(keys.is_empty(), format!("left: {keys:?}"))
}

async fn a_store_that_is_not_there_is_an_error_without_secrets() -> Outcome {
    let port = conformance_tests::servers::free_port()?;
    let url = format!("redis://me:s3cret@127.0.0.1:{port}/?outage=1s");
    let error = match bench([url])?.run().await {
        Ok(_) => return Err(Failure::new("a store without a server was measured")),
        Err(error) => error.to_string(),
    };
    ensure(error.starts_with("redis: "), &*error)?;
    ensure(!error.contains("s3cret"), &*error)
}
