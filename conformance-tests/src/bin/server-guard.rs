//! Keeps a server of the tests below itself and takes it along.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = conformance_tests::servers::guardian::serve() {
        return code;
    }
    ExitCode::from(64)
}
