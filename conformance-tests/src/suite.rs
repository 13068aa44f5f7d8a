//! Cases times setups, as trials of a test runner.

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::{Builder, Runtime};

use crate::case::{Case, Programs};
use crate::cases;
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome};
use crate::setup::Setup;

/// Names the setups whose absence is a failure, divided by commas; `all` names every one.
pub const REQUIRE: &str = "LOCKKIT_REQUIRE";

/// The suite, ready to run.
///
/// # Examples
/// ```no_run
/// use conformance_tests::Suite;
/// use conformance_tests::setups::MemorySetup;
///
/// fn main() -> std::process::ExitCode {
///     Suite::new().setup(MemorySetup::leases()).run()
/// }
/// ```
#[derive(Debug, Default)]
pub struct Suite {
    setups: Vec<Arc<dyn Setup>>,
    programs: Programs,
    require: Vec<String>,
}

impl Suite {
    /// All cases, on no setup yet. What `LOCKKIT_REQUIRE` names is required.
    #[must_use]
    pub fn new() -> Self {
        Self {
            setups: Vec::new(),
            programs: Programs::default(),
            require: required(),
        }
    }

    /// Adds a setup.
    #[must_use]
    pub fn setup(mut self, setup: impl Setup) -> Self {
        self.setups.push(Arc::new(setup));
        self
    }

    /// Adds setups.
    #[must_use]
    pub fn setups(mut self, setups: impl IntoIterator<Item = Box<dyn Setup>>) -> Self {
        self.setups.extend(setups.into_iter().map(Arc::from));
        self
    }

    /// Names the program that takes locks in processes of its own. Without it the cases of crashed
    /// processes are skipped.
    #[must_use]
    pub fn taker(mut self, program: impl Into<std::path::PathBuf>) -> Self {
        self.programs.taker = Some(program.into());
        self
    }

    /// One trial for each case and setup, named `setup::module::case`. What cannot run is listed as
    /// ignored, with its reason as the kind.
    #[must_use]
    pub fn trials(&self) -> Vec<Trial> {
        let mut trials = Vec::new();
        for setup in &self.setups {
            let missing = setup.missing();
            trials.extend(self.requirement(&**setup, missing.as_deref()));
            for case in cases::all() {
                let skip = missing
                    .clone()
                    .or_else(|| case.skip(&**setup, &self.programs));
                trials.push(self.trial(setup, case, skip));
            }
        }
        trials.extend(self.unknown());
        trials
    }

    /// Runs the trials as the program's arguments say, and prints what `cargo test` prints.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        // Most cases wait for leases: more of them than processors can run at once.
        arguments.test_threads.get_or_insert(8);
        libtest_mimic::run(&arguments, self.trials()).exit_code()
    }

    fn trial(&self, setup: &Arc<dyn Setup>, case: Case, skip: Option<String>) -> Trial {
        let name = format!("{}::{}", setup.name(), case.name());
        let (setup, programs) = (Arc::clone(setup), self.programs.clone());
        let body = move || {
            let run = CaseRun::new(&*setup, &case, programs);
            run.run()
                .map_err(|failure| Failed::from(failure.to_string()))
        };
        let trial = Trial::test(name, body).with_ignored_flag(skip.is_some());
        match skip {
            Some(reason) => trial.with_kind(format!("skip: {reason}")),
            None => trial,
        }
    }

    fn requires(&self, name: &str) -> bool {
        self.require.iter().any(|it| it == "all" || it == name)
    }

    /// A trial that says whether a required setup is here.
    fn requirement(&self, setup: &dyn Setup, missing: Option<&str>) -> Option<Trial> {
        if !self.requires(setup.name()) {
            return None;
        }
        let answer = match missing {
            None => Ok(()),
            Some(reason) => Err(Failed::from(format!("required, but {reason}"))),
        };
        let name = format!("{}::is_here", setup.name());
        Some(Trial::test(name, move || answer))
    }

    /// A failing trial for each required name that no setup has.
    fn unknown(&self) -> Vec<Trial> {
        let known = |name: &String| self.setups.iter().any(|setup| setup.name() == name);
        let unknown = self
            .require
            .iter()
            .filter(|name| *name != "all" && !known(name));
        unknown
            .map(|name| {
                let message = format!("{REQUIRE} names `{name}`, but no setup is called so");
                Trial::test(format!("{name}::is_here"), move || Err(message.into()))
            })
            .collect()
    }
}

/// One run of one case on one setup, for runners of other kinds.
pub struct CaseRun<'a> {
    setup: &'a dyn Setup,
    case: &'a Case,
    programs: Programs,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_core::mutants::Mutant>,
}

impl<'a> CaseRun<'a> {
    /// A run that was not begun.
    #[must_use]
    pub const fn new(setup: &'a dyn Setup, case: &'a Case, programs: Programs) -> Self {
        Self {
            setup,
            case,
            programs,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// Breaks a promise in every client of the case.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn mutant(mut self, mutant: lockkit_core::mutants::Mutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// Runs it in a runtime of its own, on the calling thread and two more. Panics of the case go
    /// through.
    ///
    /// # Errors
    /// - [`Failure`] of the case, or that it did not end within its time limit.
    pub fn run(self) -> Outcome {
        let runtime = runtime()?;
        let limit = self.case.limit();
        let ended = runtime.block_on(async { tokio::time::timeout(limit, self.start()).await });
        // What the case left behind is not waited for.
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended.unwrap_or_else(|_| Err(Failure::new(format!("not done after {limit:?}"))))
    }

    async fn start(self) -> Outcome {
        let (setup, case) = (self.setup, self.case);
        let ctx = Ctx::new(setup, case.name(), case.wants_alone(), self.programs).await?;
        #[cfg(feature = "mutants")]
        let ctx = ctx.with_mutant(self.mutant);
        case.run(&ctx).await
    }
}

impl fmt::Debug for CaseRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaseRun")
            .field("setup", &self.setup)
            .field("case", &self.case)
            .finish_non_exhaustive()
    }
}

/// What `LOCKKIT_REQUIRE` names.
pub(crate) fn required() -> Vec<String> {
    let require = std::env::var(REQUIRE).unwrap_or_default();
    let names = require.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

pub(crate) fn runtime() -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}
