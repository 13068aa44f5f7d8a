//! The guardian of a test server: when it ends, the server ends.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = conformance_tests::servers::guardian::serve() {
        return code;
    }
    ExitCode::from(64)
}
