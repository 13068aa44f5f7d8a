//! The page of a report in a real browser: nothing to complain about, and nothing cut off.
//!
//! `LOCKKIT_PICTURES=directory` keeps what the browser saw.

mod driver;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use conformance_tests::foreign::missing;
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_bench::report::Topic;
use lockkit_bench::{Bench, Program, Report};
use serde_json::Value;

use crate::driver::Browser;

fn main() -> ExitCode {
    lockkit_bench::serve().unwrap_or_else(|| TestSuite::main(1, tests))
}

fn tests() -> TestSuite {
    let absent = missing("chromium").or_else(|| missing("chromedriver"));
    TestSuite::new("browser", absent)
        .test(the_page_reads_well)
        .test(the_page_of_a_phone_scrolls_only_downwards)
}

/// A real report, of a short while.
async fn report(dir: &Path) -> Outcome<Report> {
    let failure = |error: lockkit_bench::Failure| Failure::new(error.to_string());
    let file = format!("file:{}/locks", dir.display());
    let stores = [
        "memory:".to_owned(),
        file.clone(),
        format!("<b>\"bold\"</b>={file}2"),
    ];
    let bench = Bench::new(stores, Program::own().map_err(failure)?);
    let topics = [
        Topic::Solo,
        Topic::Throughput,
        Topic::Crowd,
        Topic::Names,
        Topic::Recovery,
    ];
    let bench = bench.rounds(3).time(Duration::from_secs(2)).topics(topics);
    bench.run().await.map_err(failure)
}

async fn opened(dir: &Path) -> Outcome<(Report, Browser)> {
    let report = report(dir).await?;
    let page = dir.join("report.html");
    std::fs::write(&page, report.to_page())?;
    let browser = Browser::start(&dir.join("profile")).await?;
    browser.open(&page).await?;
    Ok((report, browser))
}

async fn count(browser: &Browser, selector: &str) -> Outcome<usize> {
    let script = format!("document.querySelectorAll('{selector}').length");
    let count = browser.eval(&script).await?;
    Ok(usize::try_from(count.as_u64().unwrap_or(0))?)
}

/// Texts of drawings that leave their drawing, or meet another text of it.
const COLLISIONS: &str = "[...document.querySelectorAll('svg')].flatMap(svg => {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].filter(it => it.textContent !== '');
    const boxes = texts.map(it => [it.textContent, it.getBoundingClientRect()]);
    const out = boxes.filter(([, it]) => it.left < frame.left - 1 || it.right > frame.right + 1
        || it.top < frame.top - 1 || it.bottom > frame.bottom + 1).map(([text]) => text + ' leaves');
    const met = boxes.flatMap(([one, a], index) => boxes.slice(index + 1)
        .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1
            && a.top < b.bottom - 3 && b.top < a.bottom - 3)
        .map(([other]) => one + ' meets ' + other));
    return out.concat(met);
})";

async fn the_page_reads_well() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (report, browser) = opened(dir.path()).await?;
    let topics = ["solo", "throughput", "crowd", "names", "recovery"];
    for topic in topics {
        let drawn = count(&browser, &format!("section#{topic} svg")).await?;
        ensure(drawn > 0, format!("nothing is drawn of {topic}"))?;
    }
    let rows = count(&browser, "details tbody tr").await?;
    ensure(
        rows == report.figures.len(),
        format!("{rows} rows of figures"),
    )?;
    let points = count(&browser, "circle.lock").await?;
    ensure(points > 20, format!("{points} points"))?;
    ensure(
        count(&browser, "header b b, th b").await? == 0,
        "a name became markup",
    )?;
    let data =
        browser.eval("JSON.parse(document.getElementById('data').textContent).figures.length");
    ensure(
        data.await? == report.figures.len(),
        "the page has lost its data",
    )?;
    let collisions = browser.eval(COLLISIONS).await?;
    ensure(
        collisions == Value::Array(Vec::new()),
        format!("{collisions}"),
    )?;

    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await?;
        grounds.push(
            browser
                .eval("getComputedStyle(document.body).backgroundColor")
                .await?,
        );
        keep(&browser, scheme).await?;
    }
    ensure(grounds[0] != grounds[1], format!("both are {}", grounds[0]))?;
    let console = browser.console().await?;
    ensure(console.is_empty(), format!("the console says {console:?}"))?;
    browser.quit().await
}

async fn the_page_of_a_phone_scrolls_only_downwards() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (_, browser) = opened(dir.path()).await?;
    // In a frame as wide as a phone: the window of the browser itself has a least width.
    let script = "(() => { const frame = document.createElement('iframe'); frame.width = 390; \
         frame.height = 800; frame.srcdoc = document.documentElement.outerHTML; \
         document.body.append(frame); window.phone = frame; })()";
    browser.eval(script).await?;
    for _ in 0..500 {
        let ready = "window.phone.contentDocument.querySelectorAll('footer, #data').length";
        if browser.eval(ready).await? != 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let widths = "[window.phone.contentDocument.documentElement.scrollWidth, \
         window.phone.contentDocument.documentElement.clientWidth]";
    let widths = browser.eval(widths).await?;
    let fits = widths[0] == widths[1] && widths[0].as_u64() > Some(300);
    ensure(fits, format!("wide and visible: {widths}"))?;
    browser.quit().await
}

async fn keep(browser: &Browser, name: &str) -> Outcome {
    let picture = browser.picture().await?;
    // The signature of PNG, in base64; a page without anything compresses to less.
    let sound = picture.starts_with("iVBORw0KGgo") && picture.len() > 50_000;
    ensure(sound, format!("a picture of {} letters", picture.len()))?;
    let Some(directory) = std::env::var_os("LOCKKIT_PICTURES") else {
        return Ok(());
    };
    let path = Path::new(&directory).join(format!("report-{name}.png.base64"));
    Ok(std::fs::write(path, picture)?)
}
