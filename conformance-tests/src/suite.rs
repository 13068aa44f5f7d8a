//! Cases times setups, as tests of a test runner.

use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::case::Case;
use crate::cases;
use crate::ctx::{Ctx, Programs};
use crate::failure::{Failure, Outcome};
use crate::runner::{REQUIRE, ignored, required, run, runtime};
use crate::setup::Setup;

/// Held by a case that runs beside no other; each of the others holds it to read.
static MACHINE: RwLock<()> = RwLock::new(());

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

    /// One test for each case and setup, named `setup::module::case`. What cannot run is listed as
    /// ignored, with its reason as the kind.
    #[must_use]
    pub fn tests(&self) -> Vec<Trial> {
        let required = self.requirements().into_iter();
        let required =
            required.map(|(name, answer)| Trial::test(name, move || answer.map_err(Failed::from)));
        let mut tests: Vec<Trial> = required.collect();
        let mut cases = Vec::new();
        // They come last, so that the others do not wait for them.
        let mut whole_machine = Vec::new();
        for setup in &self.setups {
            let missing = setup.missing();
            for case in cases::all() {
                let skip = missing
                    .clone()
                    .or_else(|| case.skip(&**setup, &self.programs))
                    .or_else(|| setup.skips(case.name()));
                let tests = match case.wants_whole_machine() {
                    true => &mut whole_machine,
                    false => &mut cases,
                };
                tests.push(self.test(setup, case, skip));
            }
        }
        // Mixed, in the same way each time: cases of one store wait for leases while those of another compute.
        fastrand::Rng::with_seed(0).shuffle(&mut cases);
        tests.append(&mut cases);
        tests.append(&mut whole_machine);
        tests
    }

    /// The rest of a `main`: runs the tests as the program's arguments say, and prints what `cargo test`
    /// prints. A program that was started as the guardian of a server is that guardian instead.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        // Most cases wait for leases: more of them than processors can run at once.
        run(16, || self.tests())
    }

    fn test(&self, setup: &Arc<dyn Setup>, case: Case, skip: Option<String>) -> Trial {
        let name = format!("{}::{}", setup.name(), case.name());
        let (setup, programs) = (Arc::clone(setup), self.programs.clone());
        let body = move || {
            let run = CaseRun::new(&*setup, &case, programs);
            let run = || {
                run.run()
                    .map_err(|failure| Failed::from(failure.to_string()))
            };
            if case.wants_whole_machine() {
                let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
                run()
            } else {
                let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
                run()
            }
        };
        ignored(Trial::test(name, body), skip)
    }

    fn requires(&self, setup: &dyn Setup) -> bool {
        let all = setup.is_one_of_all();
        let names = |it: &String| (all && it == "all") || it == setup.name();
        self.require.iter().any(names)
    }

    /// For each setup that is required: the name of the test that says so, and why it fails.
    fn requirements(&self) -> Vec<(String, Result<(), String>)> {
        let here = |setup: &&Arc<dyn Setup>| self.requires(&***setup);
        let here = self.setups.iter().filter(here).map(|setup| {
            let answer = match setup.missing() {
                None => Ok(()),
                Some(reason) => Err(format!("required, but {reason}")),
            };
            (format!("{}::is_here", setup.name()), answer)
        });
        let known = |name: &String| self.setups.iter().any(|setup| setup.name() == name);
        let unknown = self.require.iter();
        let unknown = unknown.filter(|name| *name != "all" && !known(name));
        let unknown = unknown.map(|name| {
            let why = format!("{REQUIRE} names `{name}`, but no setup is called so");
            (format!("{name}::is_here"), Err(why))
        });
        here.chain(unknown).collect()
    }
}

/// One run of one case on one setup, for runners of other kinds.
pub struct CaseRun<'a> {
    setup: &'a dyn Setup,
    case: &'a Case,
    programs: Programs,
}

impl<'a> CaseRun<'a> {
    /// A run that was not begun.
    #[must_use]
    pub const fn new(setup: &'a dyn Setup, case: &'a Case, programs: Programs) -> Self {
        Self {
            setup,
            case,
            programs,
        }
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

    #[expect(
        clippy::future_not_send,
        reason = "a case stays on the thread that runs it"
    )]
    async fn start(self) -> Outcome {
        let (setup, case) = (self.setup, self.case);
        let ctx = Ctx::new(setup, case.name(), case.wants_alone(), self.programs).await?;
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

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use lockkit_core::Capabilities;

    use super::*;
    use crate::namespace::Namespace;
    use crate::setups::MemorySetup;

    /// A setup whose server is not installed.
    #[derive(Debug)]
    struct Absent;

    #[async_trait]
    impl Setup for Absent {
        fn name(&self) -> &str {
            "absent"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::new()
        }

        fn missing(&self) -> Option<String> {
            Some("absent-server is not installed".into())
        }

        async fn namespace(&self, _alone: bool) -> Outcome<Box<dyn Namespace>> {
            Err(Failure::new("no case needs it"))
        }
    }

    fn suite(require: &[&str]) -> Suite {
        Suite {
            require: require.iter().map(|name| (*name).to_owned()).collect(),
            ..Suite::default()
        }
    }

    #[test]
    fn every_case_is_listed_for_every_setup() {
        let suite = suite(&[])
            .setup(MemorySetup::leases())
            .setup(MemorySetup::poll());
        let tests = suite.tests();
        assert_eq!(tests.len(), 2 * cases::all().len());
        let name = "memory-poll::waiting::poller_finds_a_free_lock";
        assert!(tests.iter().any(|test| test.name() == name));
    }

    #[test]
    fn what_cannot_run_is_ignored_with_its_reason() {
        let tests = suite(&[]).setup(MemorySetup::leases()).tests();
        let name = "memory::waiting::poller_finds_a_free_lock";
        let test = tests.iter().find(|test| test.name() == name).unwrap();
        assert!(test.has_ignored_flag());
        assert_eq!(test.kind(), "skip: waiters are woken");
    }

    #[test]
    fn a_setup_that_is_missing_is_ignored_as_a_whole() {
        let tests = suite(&[]).setup(Absent).tests();
        assert_eq!(tests.len(), cases::all().len());
        assert!(tests.iter().all(Trial::has_ignored_flag));
        assert!(tests[0].kind().contains("not installed"));
    }

    #[test]
    fn what_is_required_must_be_here() {
        for require in ["absent", "all"] {
            let required = suite(&[require]).setup(Absent).requirements();
            let why = "required, but absent-server is not installed".to_owned();
            assert_eq!(required, [("absent::is_here".into(), Err(why))]);
        }
        let here = suite(&["memory"]).setup(MemorySetup::leases());
        assert_eq!(here.requirements(), [("memory::is_here".into(), Ok(()))]);
        assert_eq!(here.tests()[0].name(), "memory::is_here");
        let unknown = suite(&["memroy"]).setup(MemorySetup::leases());
        assert_eq!(unknown.requirements().len(), 1);
        assert!(unknown.requirements()[0].1.is_err());
        assert_eq!(suite(&[]).setup(Absent).requirements(), []);
    }

    /// A need that no setup meets any more would look like a promise that is kept.
    #[test]
    fn every_case_runs_on_some_setup() {
        let setups = crate::setups::all();
        let taker = Some("lock-taker".into());
        let programs = Programs { taker };
        for case in cases::all() {
            let runs = setups.iter().any(|setup| {
                let skip = case.skip(&**setup, &programs);
                skip.or_else(|| setup.skips(case.name())).is_none()
            });
            assert!(runs, "{}", case.name());
        }
    }

    #[test]
    fn a_case_that_fails_is_a_failure() {
        async fn fails(_: &Ctx) -> Outcome {
            Err(Failure::new("on purpose"))
        }
        let setup = MemorySetup::leases();
        let run = CaseRun::new(&setup, &Case::new(fails), Programs::default()).run();
        assert_eq!(run.unwrap_err().message(), "on purpose");
    }
}
