//! Tests beside the table of cases and setups, for what only one kind of store has.

use std::process::ExitCode;

use libtest_mimic::{Failed, Trial};

use crate::failure::Outcome;
use crate::runner::{ignored, required, run, runtime};

/// Tests that need something which may be absent, such as a server or a foreign program.
///
/// A test that cannot run is listed as ignored, with the reason as its kind.
#[derive(Debug)]
pub struct TestSuite {
    name: &'static str,
    missing: Option<String>,
    tests: Vec<Trial>,
}

impl TestSuite {
    /// The whole `main` of a test program: runs the tests of a suite as the program's arguments say,
    /// `threads` at once unless those say otherwise. A program that was started as the guardian of a
    /// server is that guardian instead.
    #[must_use]
    pub fn main(threads: usize, suite: impl FnOnce() -> Self) -> ExitCode {
        run(threads, || suite().tests)
    }

    /// A suite without tests. `LOCKKIT_REQUIRE` calls it `name`; `missing` says why it cannot run here.
    #[must_use]
    pub fn new(name: &'static str, missing: Option<String>) -> Self {
        let mut tests = Vec::new();
        if required().iter().any(|it| it == "all" || it == name) {
            let reason = missing.clone();
            tests.push(Trial::test(format!("{name}::is_here"), move || {
                reason.map_or(Ok(()), |reason| {
                    Err(Failed::from(format!("required, but {reason}")))
                })
            }));
        }
        Self {
            name,
            missing,
            tests,
        }
    }

    /// Adds the tests of another suite.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.tests.extend(other.tests);
        self
    }

    /// Adds a test. Its name is that of its function, without generic arguments.
    #[must_use]
    pub fn test<F, Fut>(mut self, body: F) -> Self
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Outcome>,
    {
        let path = std::any::type_name::<F>();
        let path = path.split('<').next().unwrap_or(path);
        let function = path.rsplit("::").next().unwrap_or(path);
        let name = format!("{}::{function}", self.name);
        let test = Trial::test(name, move || {
            let runtime = runtime().map_err(|failure| failure.to_string())?;
            let ended = runtime.block_on(body());
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            ended.map_err(|failure| Failed::from(failure.to_string()))
        });
        self.tests.push(ignored(test, self.missing.clone()));
        self
    }

    /// Adds a requirement for the tests that are added from now on; `missing` says why it is not met.
    #[must_use]
    pub fn needing(mut self, missing: Option<String>) -> Self {
        self.missing = self.missing.or(missing);
        self
    }
}
