//! Steps of the file store, each call of which to the operating system fails: no step that fails has an effect, and
//! nothing stays locked.
//!
//! | step | its calls, beside `fstat`, `flock` and `lstat` on what is open |
//! |---|---|
//! | attempt | open the file or create it, read it, write it |
//! | renew | none |
//! | note | read the file, write it |
//! | release | read the file, write it: the step succeeds without both |
//! | inspect | open the file, read it |
//! | list | open the directory, and inspect each lock |
//! | break | open the directory and the file, remove and create the new file, write it, rename it |
//! | purge | open the directory and each file, open the directory again, remove the file |

#![cfg(target_os = "linux")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::scratch::{Scratch, ticket};
use lockkit_core::contract::{Attempt, Release, Renewal, Ticket};
use lockkit_core::file::FileStore;
use lockkit_core::{BackendError, DistributedLock as _, Outcome};
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

/// Names the child of the test below.
const CHILD: &str = "LOCKKIT_TEST_FILE_STEPS";
const NOTE: &str = "a note";
/// A user who is not the one that runs the tests.
const NOBODY: u32 = 65_534;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Of a lock that was never taken.
    Attempt,
    /// Of one that is free.
    AttemptAgain,
    /// Of one that is held.
    AttemptBehind,
    Renew,
    Note,
    Release,
    Inspect,
    List,
    Break,
    Purge,
}

const STEPS: [Step; 10] = [
    Step::Attempt,
    Step::AttemptAgain,
    Step::AttemptBehind,
    Step::Renew,
    Step::Note,
    Step::Release,
    Step::Inspect,
    Step::List,
    Step::Break,
    Step::Purge,
];

#[derive(Clone, Copy, Debug)]
enum Harm {
    /// No file may grow beyond so many bytes, as on a full disk: nothing or a part is written.
    Full(u64),
    /// The process may open so many further files.
    Files(usize),
    /// A file is where the directory was.
    FileForDirectory,
    /// The directory is elsewhere.
    DirectoryAway,
    /// A directory is where the file of a broken lock is made.
    FreshIsDirectory,
    /// The user may change neither the directory nor its files.
    Denied,
}

/// More than any step opens.
const FILES: usize = 4;

impl Step {
    /// How many files it has open at once, each of which it may fail to open.
    const fn opens(self) -> usize {
        match self {
            Self::Renew | Self::Note | Self::Release => 0,
            Self::Attempt
            | Self::AttemptAgain
            | Self::AttemptBehind
            | Self::Inspect
            | Self::List => 1,
            Self::Purge => 2,
            Self::Break => 3,
        }
    }

    const fn attempts(self) -> bool {
        matches!(
            self,
            Self::Attempt | Self::AttemptAgain | Self::AttemptBehind
        )
    }

    /// Whether its ticket holds before.
    const fn is_held(self) -> bool {
        !self.attempts() && !matches!(self, Self::Purge)
    }

    /// Whether its ticket holds once it has succeeded.
    const fn keeps(self) -> bool {
        !matches!(
            self,
            Self::AttemptBehind | Self::Release | Self::Break | Self::Purge
        )
    }

    const fn failure(self, harm: Harm) -> Option<Outcome> {
        let fails = match harm {
            Harm::Full(_) => matches!(
                self,
                Self::Attempt | Self::AttemptAgain | Self::Note | Self::Break
            ),
            Harm::Files(count) => count < self.opens(),
            Harm::FileForDirectory => true,
            Harm::DirectoryAway => {
                self.attempts() || matches!(self, Self::List | Self::Break | Self::Purge)
            }
            Harm::FreshIsDirectory => matches!(self, Self::Break),
            Harm::Denied => self.attempts() || matches!(self, Self::Break),
        };
        match harm {
            _ if !fails => None,
            Harm::Full(_) | Harm::Files(_) | Harm::DirectoryAway => Some(Outcome::Unavailable),
            _ => Some(Outcome::Rejected),
        }
    }

    /// Whether it returns what it must.
    async fn run(self, store: &FileStore, ticket: &Ticket) -> Result<bool, BackendError> {
        Ok(match self {
            Self::Renew => {
                let renewed = store.renew(std::slice::from_ref(ticket)).await.pop();
                matches!(renewed.transpose()?, Some(Renewal::Renewed { .. }))
            }
            Self::Note => store.note(ticket, NOTE).await?,
            Self::Release => store.release(ticket).await? == Release::Released,
            Self::Inspect => store.inspect(&ticket.name).await?.is_some(),
            Self::List => store.list("").await?.len() == 1,
            Self::Break => store.break_lock(&ticket.name).await?.is_some(),
            // It passes over a file that it may not open.
            Self::Purge => store.purge(Duration::ZERO).await? <= 1,
            Self::AttemptBehind => matches!(store.attempt(ticket).await?, Attempt::Held { .. }),
            _ => matches!(store.attempt(ticket).await?, Attempt::Granted(_)),
        })
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Does something under a lower limit of this process.
fn limited<T>(resource: Resource, limit: u64, work: impl FnOnce() -> T) -> T {
    let before = getrlimit(resource);
    let maximum = before.maximum;
    let current = Some(limit);
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
    let result = work();
    setrlimit(resource, before).unwrap();
    result
}

impl Harm {
    /// Does something while it lasts.
    fn during<T: Send>(self, store: &FileStore, work: impl FnOnce() -> T + Send) -> T {
        let dir = store.dir();
        let (away, fresh) = (dir.with_extension("away"), dir.join(".broken"));
        match self {
            Self::Full(bytes) => limited(Resource::Fsize, bytes, work),
            Self::Files(count) => limited(Resource::Nofile, 64, || {
                let mut open: Vec<File> =
                    std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
                open.truncate(open.len() - count);
                work()
            }),
            Self::FileForDirectory | Self::DirectoryAway => {
                fs::rename(dir, &away).unwrap();
                if matches!(self, Self::FileForDirectory) {
                    fs::write(dir, "").unwrap();
                }
                let result = work();
                fs::remove_file(dir).ok();
                fs::rename(&away, dir).unwrap();
                result
            }
            Self::FreshIsDirectory => {
                fs::create_dir(&fresh).unwrap();
                let result = work();
                fs::remove_dir(&fresh).unwrap();
                result
            }
            Self::Denied => {
                let entries = || {
                    fs::read_dir(dir)
                        .unwrap()
                        .map(|entry| entry.unwrap().path())
                };
                let set = |path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
                entries().for_each(|path| set(path, 0o444).unwrap());
                set(dir.to_owned(), 0o555).unwrap();
                let result = as_nobody(work);
                set(dir.to_owned(), 0o700).unwrap();
                entries().for_each(|path| set(path, 0o644).unwrap());
                result
            }
        }
    }
}

/// Does something in a thread of another user, if this one is root, whom no permission binds.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let nobody = Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok();
            work()
        });
        other.join().unwrap()
    })
}

fn token(runtime: &Runtime, store: &FileStore, ticket: &Ticket) -> Option<u64> {
    match runtime.block_on(store.attempt(ticket)).unwrap() {
        Attempt::Granted(grant) => Some(grant.token.get()),
        _ => None,
    }
}

fn trial(runtime: &Runtime, step: Step, harm: Harm) {
    let case = format!("{step:?}, {harm:?}");
    let scratch = Scratch::new();
    let (store, other) = (scratch.store(), scratch.store());
    let (mine, theirs, next) = (ticket("a"), ticket("a"), ticket("a"));
    let before = match step {
        Step::Attempt => None,
        Step::AttemptBehind => token(runtime, &other, &theirs),
        _ if step.is_held() => token(runtime, &store, &mine),
        _ => {
            let token = token(runtime, &other, &theirs);
            runtime.block_on(other.release(&theirs)).unwrap();
            token
        }
    };
    // Its runtime opens files, too.
    let own = self::runtime();
    let said = harm.during(&store, || own.block_on(step.run(&store, &mine)));
    let failure = said.as_ref().err().map(BackendError::outcome);
    assert_eq!(failure, step.failure(harm), "{case}: {said:?}");
    // A file that is not in its place can be another one's: the hold is lost.
    let away = matches!(harm, Harm::DirectoryAway);
    let done = said.is_ok();
    assert!(said.is_ok_and(|fits| fits != away) || !done, "{case}");
    let holds = match done {
        true => step.keeps() && (!away || step == Step::Inspect),
        false => step.is_held(),
    };
    if holds {
        let renewed = runtime.block_on(store.renew(std::slice::from_ref(&mine)));
        let renewed = renewed.into_iter().next().unwrap().unwrap();
        assert!(
            matches!(renewed, Renewal::Renewed { .. }),
            "{case}: {renewed:?}"
        );
        let now = token(runtime, &store, &mine);
        assert!(now == before || step.attempts(), "{case}: another token");
        assert_eq!(token(runtime, &other, &next), None, "{case}: two hold it");
        let seen = runtime.block_on(other.inspect(&mine.name)).unwrap();
        let note = seen.unwrap().holders[0].note.clone();
        let noted = (done && step == Step::Note).then_some(NOTE);
        assert_eq!(note.as_deref(), noted, "{case}");
        let released = runtime.block_on(store.release(&mine)).unwrap();
        assert_eq!(released, Release::Released, "{case}");
    }
    // A ticket whose attempt failed is not released.
    runtime.block_on(other.release(&theirs)).unwrap();
    let granted = token(runtime, &other, &next);
    assert!(
        granted.is_some() && granted > before,
        "{case}: {granted:?} after {before:?}"
    );
}

/// The limits of a process bind all its threads, and a file that may not grow ends a process that does not ignore the
/// signal: so it is a child that carries out all trials.
#[test]
fn step_that_fails_has_no_effect_whichever_call_fails() {
    let exe = std::env::current_exe().unwrap();
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(exe)
        .args([
            "file_steps::all_trials",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let [said, failed] = [&child.stdout, &child.stderr].map(|text| String::from_utf8_lossy(text));
    // It succeeds without any test, too.
    let passed = child.status.success() && said.contains("1 passed");
    assert!(passed, "{said}{failed}");
}

#[test]
#[ignore = "only a child process of another test runs it"]
fn all_trials() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let runtime = runtime();
    let harms = [
        Harm::Full(0),
        Harm::Full(300),
        Harm::FileForDirectory,
        Harm::DirectoryAway,
        Harm::FreshIsDirectory,
        Harm::Denied,
    ];
    let files = (0..FILES).map(Harm::Files);
    let harms: Vec<Harm> = harms.into_iter().chain(files).collect();
    for step in STEPS {
        for &harm in &harms {
            trial(&runtime, step, harm);
        }
    }
}
