//! What all test programs share: the requirements of the user, the runtime and the test runner.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Outcome;

/// Names the setups whose absence is a failure, divided by commas; `all` names every one.
pub const REQUIRE: &str = "LOCKKIT_REQUIRE";

/// What `LOCKKIT_REQUIRE` names.
pub(crate) fn required() -> Vec<String> {
    let require = std::env::var(REQUIRE).unwrap_or_default();
    let names = require.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The runtime of one test.
pub(crate) fn runtime() -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}

/// Lists a test as ignored if there is a reason, with the reason as its kind.
pub(crate) fn ignored(test: Trial, reason: Option<String>) -> Trial {
    let test = test.with_ignored_flag(reason.is_some());
    match reason {
        Some(reason) => test.with_kind(format!("skip: {reason}")),
        None => test,
    }
}

/// Plays the guardian of a server if the program was started as one; otherwise runs tests as the
/// program's arguments say, `threads` at once unless those say otherwise.
pub(crate) fn run(threads: usize, tests: impl FnOnce() -> Vec<Trial>) -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = crate::servers::guardian::serve() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    libtest_mimic::run(&arguments, tests()).exit_code()
}
