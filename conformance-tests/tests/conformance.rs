//! Every case on every setup that this workspace knows.

use std::process::ExitCode;

use conformance_tests::{Suite, setups};

fn main() -> ExitCode {
    Suite::new()
        .setups(setups::all())
        .taker(env!("CARGO_BIN_EXE_lock-taker"))
        .run()
}
