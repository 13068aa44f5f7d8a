//! Measures the three updates of `cas`, before and after, with 1 to 64 contenders.
//!
//! Run it: `cargo run --release -p lockkit-examples --bin cas_table`
//!
//! To use a Redis server, add `-- URL`; without a URL the program starts `redis-server` itself.
//! It measures both ways alternately, three times, and shows the run with the median rate.
//! `--span 200ms` sets the length of a run. `--write` puts the figures into `cas-to-lock.json` and the table
//! into the guide. `--table` measures nothing, and writes the table from that file again.
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lockkit_examples::Outcome;
use lockkit_examples::cas::Case;
use lockkit_examples::cas::chat_room::ChatRoom;
use lockkit_examples::cas::crowd::{Seen, Until, Way, run};
use lockkit_examples::cas::session::Session;
use lockkit_examples::cas::stock::Stock;
use lockkit_examples::server::Server;
use serde_json::{Value, json};

/// The file of the figures, and the guide that shows them.
const FIGURES: &str = "cas-to-lock.json";
const GUIDE: &str = "cas-to-lock.md";
const ROUNDS: usize = 3;
const CONTENDERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The lines before and after the table in the guide.
const MARKS: [&str; 2] = ["<!-- table -->", "<!-- end of table -->"];

#[tokio::main]
async fn main() -> Outcome {
    let (mut url, mut writes, mut span) = (None, false, Duration::from_secs(1));
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--write" => writes = true,
            "--table" => {
                return put_into_the_guide(&shown(&kept()?)?);
            }
            "--span" => {
                let text = arguments.next().unwrap_or_default();
                span = lockkit::url::parse_duration(&text)?;
            }
            _ => url = Some(argument),
        }
    }
    let server = Server::at_or_own(url).await?;
    let mut figures = Vec::new();
    measure(&server, &ChatRoom::new("lobby", 64), span, &mut figures).await?;
    measure(&server, &Session::new("42"), span, &mut figures).await?;
    // More than can be sold.
    measure(&server, &Stock::new("teapot", 1 << 40), span, &mut figures).await?;
    let shown = shown(&figures)?;
    println!("{shown}");
    if writes {
        let text = serde_json::to_string_pretty(&Value::from(figures))?;
        fs::write(here().join(FIGURES), text + "\n")?;
        put_into_the_guide(&shown)?;
    }
    Ok(())
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The figures that were kept last.
fn kept() -> Outcome<Vec<Value>> {
    let text = fs::read_to_string(here().join(FIGURES))?;
    Ok(serde_json::from_str(&text)?)
}

fn put_into_the_guide(shown: &str) -> Outcome {
    let guide = here().join(GUIDE);
    fs::write(&guide, with_table(&fs::read_to_string(&guide)?, shown)?)?;
    Ok(())
}

/// What the guide shows.
fn shown(figures: &[Value]) -> Outcome<String> {
    Ok(format!("{}\n{}\n", table(figures)?, crossover(figures)))
}

async fn measure<C: Case>(
    server: &Server,
    case: &C,
    span: Duration,
    figures: &mut Vec<Value>,
) -> Outcome {
    for contenders in CONTENDERS {
        let (mut watched, mut locked) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            for (way, seen) in [(Way::Watched, &mut watched), (Way::Locked, &mut locked)] {
                seen.push(run(server, case, way, contenders, Until::Over(span)).await?);
            }
        }
        figures.push(json!({
            "case": C::NAME,
            "contenders": contenders,
            "watched": figure(&middle(watched)),
            "locked": figure(&middle(locked)),
        }));
    }
    Ok(())
}

fn middle(mut runs: Vec<Seen>) -> Seen {
    runs.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    runs.swap_remove(runs.len() / 2)
}

fn figure(seen: &Seen) -> Value {
    json!({
        "done": seen.done,
        "retries": seen.retries,
        "per_second": seen.per_second,
        "median_us": micros(seen.median),
        "p99_us": micros(seen.p99),
        "commands": seen.commands,
    })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The table of the guide, from the figures in the file.
fn table(figures: &[Value]) -> Outcome<String> {
    let mut table = String::from(
        "| case | contenders | updates/s: CAS | lock | retries for each update: CAS | p99: CAS | lock | \
         commands for each update: CAS | lock |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for figure in figures {
        let number = |way: &str, field: &str| figure[way][field].as_f64().unwrap_or_default();
        let millis = |way| number(way, "p99_us") / 1000.0;
        writeln!(
            table,
            "| {} | {} | {:.0} | {:.0} | {:.1} | {:.1} ms | {:.1} ms | {:.1} | {:.1} |",
            figure["case"].as_str().unwrap_or_default(),
            figure["contenders"],
            number("watched", "per_second"),
            number("locked", "per_second"),
            number("watched", "retries") / number("watched", "done").max(1.0),
            millis("watched"),
            millis("locked"),
            number("watched", "commands"),
            number("locked", "commands"),
        )?;
    }
    Ok(table)
}

/// The number of contenders above which the lock is faster than CAS, in a sentence.
fn crossover(figures: &[Value]) -> String {
    let mut cases: Vec<&str> = figures
        .iter()
        .filter_map(|it| it["case"].as_str())
        .collect();
    cases.dedup();
    let from = cases.into_iter().map(|case| {
        let rate = |figure: &Value, way: &str| figure[way]["per_second"].as_f64();
        let loses = |it: &&Value| it["case"] == case && rate(it, "locked") < rate(it, "watched");
        let last = figures.iter().rfind(loses);
        match last.and_then(|figure| figure["contenders"].as_u64()) {
            Some(contenders) => format!("{case}: more than {contenders}"),
            None => format!("{case}: always"),
        }
    });
    let from: Vec<String> = from.collect();
    format!(
        "Contenders with which the lock was faster than CAS here: {}.",
        from.join("; ")
    )
}

fn with_table(guide: &str, table: &str) -> Outcome<String> {
    let [begin, end] = MARKS;
    let (before, rest) = guide.split_once(begin).ok_or("the guide has no table")?;
    let (_, after) = rest
        .split_once(end)
        .ok_or("the table in the guide has no end")?;
    Ok(format!("{before}{begin}\n{table}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_shows_the_figures_that_were_kept() -> Outcome {
        let guide = fs::read_to_string(here().join(GUIDE))?;
        let anew = with_table(&guide, &shown(&kept()?)?)?;
        assert_eq!(guide, anew, "run `cargo x tables`");
        Ok(())
    }
}
