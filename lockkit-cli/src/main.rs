//! The `lockkit` command: `flock(1)` for a fleet.

#[cfg(not(unix))]
compile_error!("the lockkit command needs a Unix system: its promise rests on process groups");

mod args;
mod bench;
mod child;
mod clock;
mod exec;
mod exit;
mod family;
mod foreground;
mod generate;
mod ipc;
mod maintenance;
mod output;
mod plan;
mod render;
mod run;
mod shim;
mod signals;
mod status;
mod store;
mod supervise;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Action, Cli};
use crate::exit::{Code, Failure};

fn main() -> ExitCode {
    exec::take_name();
    let mut arguments = std::env::args_os().skip(1);
    let outcome = match arguments.next() {
        Some(first) if first == shim::ARGUMENT => shim::run(arguments).map(|()| Code::Own(0)),
        Some(first) if first == exec::ARGUMENT => Err(exec::run(arguments)),
        _ => match Cli::try_parse() {
            Ok(cli) => act(&cli),
            Err(error) => Ok(output::explain(error)),
        },
    };
    outcome
        .unwrap_or_else(|failure| output::fail(&failure))
        .into()
}

fn act(cli: &Cli) -> Result<Code, Failure> {
    match &cli.action {
        Action::Run(args) => run::run(args, &cli.store),
        Action::Status(args) => status::status(args, &cli.store),
        Action::List(args) => status::list(args, &cli.store),
        Action::Watch(args) => status::watch(args, &cli.store),
        Action::Break(args) => status::break_lock(args, &cli.store),
        Action::Schema(args) => maintenance::schema(args, &cli.store),
        Action::Purge(args) => maintenance::purge(args, &cli.store),
        Action::Bench { arguments } => Err(bench::bench(arguments, &cli.store)),
        Action::Completions { shell } => generate::completions(*shell),
        Action::Man { command } => generate::man(command.as_deref()),
    }
}
