//! Developers' tasks: `cargo x ci` is the one test command, and every step of it can run alone.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command that people run talks to them there"
)]

mod api;
mod ci;
mod done;
mod failures;
mod fetch;
mod mutants;
mod patched;
mod release;
mod setup;
mod steps;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::done::Done;
use crate::workspace::Workspace;

/// Developers' tasks of the lockkit workspace.
#[derive(Parser, Debug)]
#[command(name = "cargo x", bin_name = "cargo x")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Install what is missing, then check and test everything; a check that fails ends it, a test at its end
    Ci {
        /// Run only these steps, in the order of the full run
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(ci::names()))]
        steps: Vec<String>,
    },
    /// Run all tests against the stores that are present; absent ones show as ignored
    Test,
    /// Install what the tests need, or say what is missing
    Setup,
    /// Compare the public API of each library with its listing in `api/`
    Api {
        /// Rewrite the listings
        #[arg(long)]
        bless: bool,
    },
    /// Run the tests against broken variants of the product, which they must notice
    Mutants {
        /// Only those made by hand whose names contain NAME, such as `redis::`
        #[arg(default_value = "", hide_default_value = true)]
        name: String,
        /// Those that cargo-mutants makes of FILE, such as `client/hold/state`, or of all files of core
        /// that decide; without this, those that were made by hand
        #[arg(long, value_name = "FILE", conflicts_with = "name", num_args = 0..=1, default_missing_value = "")]
        made: Option<String>,
    },
    /// Write the measured tables of the manual from the figures that measurements have left
    Tables,
    /// Check the rules of layout and that the documents name things that exist
    Tidy {
        /// Only show the files of each crate that import each other, and by which lines
        #[arg(long)]
        circles: bool,
    },
}

fn main() -> ExitCode {
    // Printed here, for a developer who sets RUST_BACKTRACE means the backtraces of the tests.
    match run(&Args::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    let workspace = Workspace::load()?;
    match task {
        Task::Ci { steps } => ci::run(&workspace, steps),
        Task::Test => ci::run_tests(&workspace),
        Task::Setup => setup::run(&workspace),
        Task::Api { bless } => {
            if let Done::Skipped(reason) = api::run(&workspace, *bless)? {
                println!("skipped: {reason}");
            }
            Ok(())
        }
        Task::Mutants {
            made: Some(file), ..
        } => mutants::made::run(&workspace, file),
        Task::Mutants { made: None, name } => mutants::by_hand::run(&workspace, name),
        Task::Tables => steps::tables(&workspace),
        Task::Tidy { circles: true } => tidy::print_circles(&workspace),
        Task::Tidy { circles: false } => tidy::run(&workspace).map(drop),
    }
}
