//! The report as one HTML file: no script, no font, no picture from anywhere else.

use super::words::{compared, escape, glance_rows, method, ratio, title, value};
use super::{Figure, Report, Topic, Unit, chart, curves};
use crate::machine::date;
use crate::noise::Spread;

const STYLE: &str = include_str!("page.css");

pub(super) fn write(report: &Report) -> String {
    let mut page =
        String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
    page.push_str("<link rel=\"icon\" href=\"data:,\">\n");
    page.push_str(&format!(
        "<title>Lock stores compared</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    ));
    page.push_str(&head(report));
    page.push_str("<main>\n");
    page.push_str(&glance(report));
    for topic in Topic::ALL {
        if report.of(topic).next().is_some() {
            page.push_str(&section(report, topic));
        }
    }
    page.push_str(&settings(report));
    page.push_str("</main>\n");
    page.push_str(&data(report));
    page.push_str("</body>\n</html>\n");
    page
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    let labels = report.own_stores().map(|store| {
        let color = chart::color(report, &store.label);
        format!(
            "<span class=\"c{color}\"><i></i>{}</span>",
            escape(&store.label)
        )
    });
    let labels: Vec<String> = labels.collect();
    let warning = if machine.optimised {
        ""
    } else {
        "<p class=\"warning\">The program was not optimised: these figures mean nothing.</p>\n"
    };
    let busy = machine.busy().map_or_else(String::new, |busy| {
        format!("<p class=\"warning\">{}</p>\n", escape(&busy))
    });
    let percent = report.method.noise_limit * 100.0;
    format!(
        "<header>\n<h1>Lock stores compared</h1>\n\
         <p class=\"sub\">lockkit {}, {} UTC, {} with {} cores, {}</p>\n{warning}{busy}\
         <p>Each lock is compared with the bare operations of its own store, measured alternately in the same \
         run. Compare the <em>ratios</em>: they change least with the machine and its load. A ratio with \
         a tilde varies by more than {percent:.0} % within this run.</p>\n\
         <p class=\"legend\">{} <span class=\"key\"><b class=\"full\"></b>the lock</span> \
         <span class=\"key\"><b class=\"hollow\"></b>bare operations</span> \
         <span class=\"key\"><b class=\"bar\"></b>where the true median of the lock lies</span></p>\n</header>\n",
        escape(&machine.lockkit),
        date(machine.began),
        escape(&machine.processor),
        machine.cores,
        escape(&machine.system),
        labels.join(" "),
    )
}

fn glance(report: &Report) -> String {
    let mut rows = String::new();
    for (heading, topic, row) in glance_rows(report) {
        rows.push_str(&format!("<tr><th scope=\"row\">{heading}</th>"));
        for store in report.own_stores() {
            let figure = report.find(topic, row, &store.label);
            rows.push_str(&figure.map_or_else(|| "<td>–</td>".to_owned(), cell));
        }
        rows.push_str("</tr>\n");
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<section id=\"glance\">\n<h2>At a glance</h2>\n<div class=\"wide\"><table>\n<thead><tr><td></td>{}</tr>\
         </thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n</section>\n",
        headings(report)
    )
}

fn headings(report: &Report) -> String {
    let each = report.own_stores().map(|store| {
        let color = chart::color(report, &store.label);
        format!(
            "<th scope=\"col\" class=\"c{color}\"><i></i>{}</th>",
            escape(&store.label)
        )
    });
    each.collect()
}

fn cell(figure: &Figure) -> String {
    let shown = escape(&value(figure.lock.median, figure.unit));
    match ratio(figure) {
        Some(ratio) => format!("<td>{shown} <small>{}</small></td>", escape(&ratio)),
        None if figure.noisy => format!("<td>~{shown}</td>"),
        None => format!("<td>{shown}</td>"),
    }
}

fn section(report: &Report, topic: Topic) -> String {
    let mut text = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n",
        id(topic),
        title(topic),
        escape(method(topic))
    );
    let mut whats: Vec<&str> = Vec::new();
    for (_, what) in report.rows(topic) {
        if !whats.contains(&what) {
            whats.push(what);
        }
    }
    for what in whats {
        let svg = chart::draw(report, topic, what);
        text.push_str(&svg.map_or_else(String::new, figure));
    }
    let curve = match topic {
        Topic::Solo => Some(("1 task", "latency of a cycle, and how rare it is")),
        Topic::Crowd => Some((
            "64 in 1 process",
            "wait of 64 contenders in one process, and how rare it is",
        )),
        _ => None,
    };
    if let Some((case, what)) = curve {
        let svg = curves::draw(report, topic, case, what);
        text.push_str(&svg.map_or_else(String::new, figure));
    }
    text.push_str(&table(report, topic));
    text.push_str("</section>\n");
    text
}

fn figure(svg: String) -> String {
    format!("<figure>\n{svg}</figure>\n")
}

const fn id(topic: Topic) -> &'static str {
    match topic {
        Topic::Solo => "solo",
        Topic::Throughput => "throughput",
        Topic::Crowd => "crowd",
        Topic::Names => "names",
        Topic::Modes => "modes",
        Topic::Sections => "sections",
        Topic::Distance => "distance",
        Topic::Recovery => "recovery",
        Topic::Holds => "holds",
        Topic::Peers => "peers",
    }
}

/// All numbers of a topic. Open where no chart shows them.
fn table(report: &Report, topic: Topic) -> String {
    let charted = matches!(
        topic,
        Topic::Solo
            | Topic::Throughput
            | Topic::Crowd
            | Topic::Modes
            | Topic::Sections
            | Topic::Distance
            | Topic::Peers
    );
    let [ours, other] = if topic == Topic::Peers {
        ["theirs", "ours"]
    } else {
        ["lock", "bare"]
    };
    let open = if charted { "" } else { " open" };
    let mut text = format!(
        "<details{open}>\n<summary>All figures</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>case</th>\
         <th>measured</th><th>store</th><th>{ours}</th><th>from – to</th><th>{other}</th><th>{}</th>\
         <th>from – to</th><th>note</th></tr></thead>\n<tbody>\n",
        compared(topic)
    );
    for figure in report.of(topic) {
        let color = chart::color(report, &figure.store);
        let shown = |number: f64| escape(&value(number, figure.unit));
        let between = |spread: &Spread| format!("{} – {}", shown(spread.low), shown(spread.high));
        let bare = figure
            .bare
            .as_ref()
            .map_or("–".to_owned(), |bare| shown(bare.median));
        let range = figure.ratio.as_ref().map_or("–".to_owned(), |ratio| {
            let times = |number| value(number, Unit::Times);
            format!("{} – {}", times(ratio.low), times(ratio.high))
        });
        text.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"c{color}\"><i></i>{}</td><td>{}</td><td>{}</td>\
             <td>{bare}</td><td>{}</td><td>{range}</td><td class=\"note\">{}</td></tr>\n",
            escape(&figure.case),
            escape(&figure.what),
            escape(&figure.store),
            shown(figure.lock.median),
            between(&figure.lock),
            escape(&ratio(figure).unwrap_or_else(|| "–".into())),
            escape(figure.note.as_deref().unwrap_or_default()),
        ));
    }
    text.push_str("</tbody>\n</table></div>\n</details>\n");
    text
}

fn settings(report: &Report) -> String {
    let mut text =
        String::from("<section id=\"settings\">\n<h2>Stores and their settings</h2>\n<dl>\n");
    for store in &report.stores {
        let color = chart::color(report, &store.label);
        let facts = store
            .facts
            .iter()
            .map(|(name, value)| format!("{name} <b>{}</b>", escape(value)));
        let facts: Vec<String> = facts.collect();
        let mut bare = format!("cycle: {}; turn: {}", store.bare_cycle, store.bare_turn);
        if !store.bare_recovery.is_empty() {
            bare.push_str(&format!("; after a kill: {}", store.bare_recovery));
        }
        bare.push_str(&format!("; hold: {}", store.bare_hold));
        if let Some(on) = &store.peer_on {
            bare = format!("beside it: our lock on {on}");
        } else {
            bare.insert_str(0, "bare ");
        }
        text.push_str(&format!(
            "<dt class=\"c{color}\"><i></i>{} <code>{}</code></dt>\n<dd>{}</dd>\n<dd class=\"note\">{}</dd>\n",
            escape(&store.label),
            escape(&store.url),
            facts.join(" · "),
            escape(&bare),
        ));
    }
    text.push_str("</dl>\n");
    let method = &report.method;
    let load = |load: Option<f64>| load.map_or("unknown".to_owned(), |load| format!("{load:.1}"));
    text.push_str(&format!(
        "<p>{} rounds, {} for each side of the shortest; the load of the machine was {} before and {} at \
         the end. Each interval holds the true median with at least 95 %; below six rounds it goes from \
         the smallest to the largest.</p>\n",
        method.rounds,
        value(method.span, Unit::Seconds),
        load(report.machine.load_before),
        load(report.machine.load_after),
    ));
    let absent: Vec<&String> = report.failures.iter().chain(&report.left_out).collect();
    if !absent.is_empty() {
        text.push_str("<h3>Not measured</h3>\n<ul class=\"warning\">\n");
        for failure in absent {
            text.push_str(&format!("<li>{}</li>\n", escape(failure)));
        }
        text.push_str("</ul>\n");
    }
    text.push_str("</section>\n");
    text
}

/// The figures themselves, so that the page can be read by a program.
fn data(report: &Report) -> String {
    let json = serde_json::to_string(report).unwrap_or_default();
    // Nothing in it can end the element.
    let json = json.replace('<', "\\u003c");
    format!("<script type=\"application/json\" id=\"data\">{json}</script>\n")
}
