//! `lockkit bench`: becomes the program `lockkit-bench`, which only those install who compare stores.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::args::StoreArgs;
use crate::exec;
use crate::exit::{Code, Failure};

const PROGRAM: &str = "lockkit-bench";

/// Passes the arguments on. Returns only if the program does not start.
pub(crate) fn bench(arguments: &[OsString], store: &StoreArgs) -> Failure {
    if store.url.is_some() && store.url != std::env::var("LOCKKIT_URL").ok() {
        let text = "name the stores as arguments: `lockkit bench URL`; --url is not used here";
        return Failure::new(Code::Usage, text);
    }
    let program = beside_us().unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(program).args(arguments).exec();
    let code = exec::code_of(&error);
    let what = if code == Code::NotFound {
        format!("`{PROGRAM}` is not installed; `cargo install {PROGRAM}` brings it")
    } else {
        format!("cannot run `{PROGRAM}`: {error}")
    };
    Failure::new(code, what)
}

/// The program in our own directory, if it is there; else the shell's search path decides.
fn beside_us() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(PROGRAM)).filter(|path| path.is_file())
}
