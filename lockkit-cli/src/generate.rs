//! What is generated from the definition of the command line: completions and manual pages.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Code, Failure};
use crate::output::print;

pub(crate) fn completions(shell: Shell) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lockkit", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Code::OK)
}

/// Prints the manual page of lockkit, or of one of its commands.
pub(crate) fn man(command: Option<&str>) -> Result<Code, Failure> {
    let mut lockkit = Cli::command();
    lockkit.build();
    let about = match command {
        None => lockkit,
        Some(name) => lockkit.find_subcommand(name).cloned().ok_or_else(|| {
            let message = format!("`{name}` is not a command of lockkit; see `lockkit --help`");
            Failure::usage(message)
        })?,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(about)
        .render(&mut page)
        .map_err(|error| Failure::new(Code::SOFTWARE, error.to_string()))?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(Code::OK)
}
