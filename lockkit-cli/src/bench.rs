//! `lockkit bench`: becomes the program `lockkit-bench`, which only those install who compare stores.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::exec;
use crate::exit::{Code, Failure};

const PROGRAM: &str = "lockkit-bench";

/// Passes the arguments on. Returns only if the program does not start.
pub(crate) fn bench(arguments: &[OsString], url: Option<&str>) -> Failure {
    if url.is_some() && url != std::env::var("LOCKKIT_URL").ok().as_deref() {
        return Failure::usage(
            "`lockkit bench` does not use --url; give the stores as arguments, as in `lockkit bench URL`",
        );
    }
    let program = beside_us().unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(program).args(arguments).exec();
    let code = exec::code_of(&error);
    let text = if code == Code::NOT_FOUND {
        format!("`{PROGRAM}` is not installed; run `cargo install --path benches` in a checkout")
    } else {
        format!("cannot run `{PROGRAM}`: {error}")
    };
    Failure::new(code, text)
}

/// The program in our own directory, if it is there; else the shell's search path decides.
fn beside_us() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(PROGRAM)).filter(|path| path.is_file())
}
