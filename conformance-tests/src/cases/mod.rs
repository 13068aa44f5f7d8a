//! The cases: one module for each kind of promise, one table in each.

mod admin;
mod ambiguity;
mod cancel;
mod capabilities;
mod cost;
mod crash;
mod election;
mod exclusion;
mod extend;
mod fencing;
mod handover;
mod history;
mod lease;
mod loss;
mod multi;
mod names;
mod outage;
mod permits;
mod queue;
mod reentry;
mod residue;
mod sharing;
mod waiting;

use crate::case::Case;

/// Every case, in the order of their modules.
#[must_use]
pub fn all() -> Vec<Case> {
    let tables = [
        exclusion::cases(),
        waiting::cases(),
        queue::cases(),
        cancel::cases(),
        lease::cases(),
        extend::cases(),
        loss::cases(),
        reentry::cases(),
        multi::cases(),
        sharing::cases(),
        permits::cases(),
        election::cases(),
        handover::cases(),
        fencing::cases(),
        names::cases(),
        capabilities::cases(),
        admin::cases(),
        crash::cases(),
        ambiguity::cases(),
        outage::cases(),
        residue::cases(),
        cost::cases(),
        history::cases(),
    ];
    tables.into_iter().flatten().collect()
}

/// The case called `module::function`.
#[must_use]
pub fn find(name: &str) -> Option<Case> {
    all().into_iter().find(|case| case.name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Reads the sources: a case that never runs would look like a promise that is kept.
    #[test]
    fn every_case_function_is_in_its_table() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cases");
        let mut written = BTreeSet::new();
        for file in fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            for line in text.lines() {
                let case = line
                    .strip_prefix("async fn ")
                    .and_then(|rest| rest.strip_suffix("(ctx: &Ctx) -> Outcome {"));
                if let Some(name) = case {
                    written.insert(format!("{module}::{name}"));
                }
            }
        }
        let listed: Vec<String> = all().iter().map(|case| case.name().to_owned()).collect();
        let unique: BTreeSet<String> = listed.iter().cloned().collect();
        assert_eq!(unique.len(), listed.len(), "a case is listed twice");
        assert_eq!(written, unique);
        assert!(listed.len() >= 60, "{} cases", listed.len());
    }
}
