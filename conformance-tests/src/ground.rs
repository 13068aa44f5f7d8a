//! Trials beside the table of cases and setups, for what only one kind of store can be asked.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::failure::Outcome;
#[cfg(unix)]
use crate::servers::guardian;
use crate::suite::{required, runtime};

/// Trials that stand on something that may not be here, such as a server or a foreign program.
///
/// What cannot run is listed as ignored, with its reason as the kind.
#[derive(Debug)]
pub struct Ground {
    name: &'static str,
    missing: Option<String>,
    trials: Vec<Trial>,
}

impl Ground {
    /// The whole `main` of such trials on servers: `missing` says why they cannot be used here,
    /// `trials` adds them, and `threads` run at once.
    #[cfg(unix)]
    #[must_use]
    pub fn main(
        name: &'static str,
        missing: impl FnOnce() -> Option<String>,
        threads: usize,
        trials: impl FnOnce(Self) -> Self,
    ) -> ExitCode {
        if let Some(code) = guardian::serve() {
            return code;
        }
        trials(Self::new(name, missing())).run(threads)
    }

    /// No trials yet, on what is called `name` in `LOCKKIT_REQUIRE`; `missing` says why it cannot be
    /// used here.
    #[must_use]
    pub fn new(name: &'static str, missing: Option<String>) -> Self {
        let mut trials = Vec::new();
        if required().iter().any(|it| it == "all" || it == name) {
            let reason = missing.clone();
            trials.push(Trial::test(format!("{name}::is_here"), move || {
                reason.map_or(Ok(()), |reason| {
                    Err(Failed::from(format!("required, but {reason}")))
                })
            }));
        }
        Self {
            name,
            missing,
            trials,
        }
    }

    /// Adds the trials of another ground.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.trials.extend(other.trials);
        self
    }

    /// Adds a trial, which is named as its function, without what that is generic over.
    #[must_use]
    pub fn trial<F, Fut>(mut self, body: F) -> Self
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Outcome>,
    {
        let path = std::any::type_name::<F>();
        let path = path.split('<').next().unwrap_or(path);
        let function = path.rsplit("::").next().unwrap_or(path);
        let name = format!("{}::{function}", self.name);
        let trial = Trial::test(name, move || {
            let runtime = runtime().map_err(|failure| failure.to_string())?;
            let ended = runtime.block_on(body());
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            ended.map_err(|failure| Failed::from(failure.to_string()))
        });
        let trial = trial.with_ignored_flag(self.missing.is_some());
        self.trials.push(match &self.missing {
            Some(reason) => trial.with_kind(format!("skip: {reason}")),
            None => trial,
        });
        self
    }

    /// Says that the trials which are added from now on need something more; `missing` says why it
    /// cannot be used here.
    #[must_use]
    pub fn needing(mut self, missing: Option<String>) -> Self {
        self.missing = self.missing.or(missing);
        self
    }

    /// Runs them as the program's arguments say, `threads` at once unless those say otherwise.
    #[must_use]
    pub fn run(self, threads: usize) -> ExitCode {
        let mut arguments = Arguments::from_args();
        arguments.test_threads.get_or_insert(threads);
        libtest_mimic::run(&arguments, self.trials).exit_code()
    }
}
