//! The one place that prints.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::{Code, Failure};

/// The longest argument that an error quotes.
const LONG: usize = 80;

/// Prints a line for the person who runs the command, on standard error.
pub(crate) fn say(message: impl Display) {
    // Not `eprintln!`, which panics where standard error is closed.
    let _ = writeln!(io::stderr(), "lockkit: {message}");
}

/// Prints results on standard output; `false` if its reader has closed it.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(
            Code::SYSTEM,
            format!("cannot write the output: {error}"),
        )),
    }
}

/// Prints a message of clap: help and version are results, the rest is a usage error.
pub(crate) fn explain(mut error: clap::Error) -> Code {
    if !error.use_stderr() {
        let _ = error.print();
        return Code::OK;
    }
    // "Use `-- --timeout`": that would be a program.
    error.remove(ContextKind::Suggested);
    for kind in [
        ContextKind::InvalidValue,
        ContextKind::InvalidArg,
        ContextKind::InvalidSubcommand,
    ] {
        if let Some(ContextValue::String(value)) = error.get(kind) {
            // Before it is cut, and quotes in it are part of it.
            let mut value = clean(value);
            if value.len() > LONG {
                value = value.chars().take(LONG / 2).chain("...".chars()).collect();
            }
            error.insert(kind, ContextValue::String(value));
        }
    }
    let text = if io::stderr().is_terminal() {
        error.render().ansi().to_string()
    } else {
        error.render().to_string()
    };
    let _ = io::stderr().write_all(without_secrets(&text).as_bytes());
    if let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && !argument.starts_with('-')
        && std::env::args_os().any(|argument| argument == "run")
    {
        say("put `--` before the program: `lockkit run NAME -- CMD`");
    }
    Code::USAGE
}

/// Asks a yes-or-no question, if there is a terminal.
pub(crate) fn ask(question: &str) -> Option<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).ok()?;
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Hides the parts of every URL in a text that can be secret: between the scheme and `@`, also where slashes are
/// missing, and all options.
/// INV-14.
pub(crate) fn without_secrets(text: &str) -> String {
    let apart = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
    text.split_inclusive(apart).map(clean).collect()
}

/// One word, with the character that ends it.
fn clean(word: &str) -> String {
    let end = word.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`'));
    let (url, end) = word.split_at(end.len());
    // First up to the last `@`: a password may have any character.
    let login = url.rsplit_once('@');
    let login = login.and_then(|(before, host)| Some((before.split_once(':')?, host)));
    let (secret, place) = match login {
        Some(((scheme, rest), host)) => {
            let slashes = if rest.starts_with("//") { "//" } else { "" };
            (format!("{scheme}:{slashes}***@"), host)
        }
        None => (String::new(), url),
    };
    let (place, options) = match place.split_once('?') {
        Some((place, _)) if !secret.is_empty() || place.contains(':') => (place, "?***"),
        _ => (place, ""),
    };
    format!("{secret}{place}{options}{end}")
}
