//! Thirty-two processes want four locks on a busy machine, and holders are stopped for longer than
//! their lease.
//!
//! It takes ten seconds; `LOCKKIT_SOAK=60 cargo test -p conformance-tests --test soak_redis` gives it
//! a minute.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod burners;
#[cfg(unix)]
mod crowd;
#[cfg(unix)]
mod trial;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::foreign::missing;
    use conformance_tests::servers::RedisServer;

    let missing = || missing(RedisServer::PROGRAM);
    Ground::main("soak-of-redis", missing, 1, |ground| {
        ground.trial(trial::stopped_holders_write_nothing_and_the_others_lose_nothing)
    })
}
