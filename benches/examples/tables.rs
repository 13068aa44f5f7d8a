//! Writes the tables of the manual from the figures in `benches/results`: `cargo x tables`.

use std::fs::{read_to_string, write};
use std::path::Path;

use lockkit_bench::{Failure, Outcome, Report};

/// The figures, and the page that shows them.
const TABLES: &[(&str, &str)] = &[("benches/results/stores.json", "lockkit/docs/choosing.md")];

fn main() -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (figures, page) in TABLES {
        let report = Report::from_json(&read_to_string(root.join(figures))?)?;
        let file = root.join(page);
        let written = report.put_into(&read_to_string(&file)?);
        let written = written.ok_or_else(|| Failure::new(format!("{page} has no place for it")))?;
        write(file, written)?;
    }
    Ok(())
}
