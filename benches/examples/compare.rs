//! Whether two runs of the bench agree: the ratios that differ by more than the limit though neither run has
//! marked them as noisy.
//!
//! `cargo run -p lockkit-bench --example compare -- ONE.json OTHER.json`
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::fs::read_to_string;
use std::process::ExitCode;

use lockkit_bench::{Failure, Outcome, Report};

fn main() -> Outcome<ExitCode> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let [one, other] = &files[..] else {
        return Err(Failure::new("two reports in JSON are compared"));
    };
    let read = |file: &str| Report::from_json(&read_to_string(file)?);
    let (one, other) = (read(one)?, read(other)?);
    let of = |report: &Report| {
        let ratios = report
            .figures
            .iter()
            .filter(|figure| figure.ratio.is_some());
        let (noisy, clear): (Vec<_>, Vec<_>) = ratios.partition(|figure| figure.noisy);
        format!(
            "{} ratios, {} marked as noisy",
            noisy.len() + clear.len(),
            noisy.len()
        )
    };
    println!("one: {}; the other: {}", of(&one), of(&other));
    let different = one.disagreements(&other);
    for line in &different {
        println!("differs: {line}");
    }
    println!("{} differ without a mark", different.len());
    Ok(ExitCode::from(u8::from(!different.is_empty())))
}
