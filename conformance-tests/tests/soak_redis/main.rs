//! Thirty-two processes want four locks on a busy machine, and holders are stopped for longer than
//! their lease.
//!
//! It takes ten seconds; `LOCKKIT_SOAK=60 cargo test -p conformance-tests --test soak_redis` gives it
//! a minute.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod burners;
mod crowd;
mod trial;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::missing;
use conformance_tests::servers::RedisServer;

fn main() -> ExitCode {
    TestSuite::main(1, tests)
}

fn tests() -> TestSuite {
    TestSuite::new("soak-of-redis", missing(RedisServer::PROGRAM))
        .test(trial::stopped_holders_write_nothing_and_the_others_lose_nothing)
}
