//! The `lockkit` command: `flock(1)` for many machines.

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
mod nested;
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
use crate::store::on_runtime;

fn main() -> ExitCode {
    exec::take_name();
    let mut arguments = std::env::args_os().skip(1);
    let outcome = match arguments.next() {
        Some(first) if first == shim::ARGUMENT => shim::run(arguments).map(|()| Code::OK),
        Some(first) if first == exec::ARGUMENT => Err(exec::run(arguments)),
        _ => match Cli::try_parse() {
            Ok(cli) => act(&cli),
            Err(error) => Ok(output::explain(error)),
        },
    };
    let code = outcome.unwrap_or_else(|failure| {
        if let Some(message) = failure.message {
            output::say(message);
        }
        failure.code
    });
    code.0.into()
}

fn act(cli: &Cli) -> Result<Code, Failure> {
    let url = cli.url.as_deref();
    match &cli.action {
        Action::Run(args) => run::run(args, url),
        Action::Status(args) => on_runtime(|it| it.block_on(status::status(args, url))),
        Action::List(args) => on_runtime(|it| it.block_on(status::list(args, url))),
        Action::Watch(args) => status::watch(args, url),
        Action::Break(args) => on_runtime(|it| it.block_on(status::break_lock(args, url))),
        Action::Schema(args) => maintenance::schema(args, url),
        Action::Purge(args) => on_runtime(|it| it.block_on(maintenance::purge(args, url))),
        Action::Bench { arguments } => Err(bench::bench(arguments, url)),
        Action::Completions { shell } => generate::completions(*shell),
        Action::Man { command } => generate::man(command.as_deref()),
    }
}
