//! `lockkit run`: acquire, run the program, release.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use lockkit::contract::{LockState, Mode};
use lockkit::file::FileStore;
use lockkit::{Error, Guard, Lease, Lock, LockClient, MultiGuard, MultiLock};
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::RunArgs;
use crate::child::Child;
use crate::clock::now;
use crate::exit::{Code, Failure};
use crate::ipc::FILES;
use crate::nested;
use crate::output::say;
use crate::plan::Plan;
use crate::render::{plain, rounded, sentence};
use crate::signals::{self, Signals};
use crate::store::{Location, has_password, on_runtime};
use crate::supervise::{Ran, supervise};

/// A shorter wait for the lock is not reported.
const SHORT_WAIT: Duration = Duration::from_millis(300);

/// A store that takes longer to open is reported: it is slow, or cannot be reached.
const SLOW_STORE: Duration = Duration::from_secs(1);

/// Runs the program under the lock. To be called by the main thread before there is any other.
pub(crate) fn run(args: &RunArgs, url: Option<&str>) -> Result<Code, Failure> {
    let mut signals = Signals::listen()?;
    let location = Location::of(url)?;
    if !args.quiet && std::io::stderr().is_terminal() {
        location.say_if_embedded();
    }
    let began = Instant::now();
    let limit = args.wait.or(args.no_wait.then_some(Duration::ZERO));
    let ran = on_runtime(|runtime| {
        let client = runtime.block_on(signals.interruptible(open(args, &location, limit)))??;
        let run = Run {
            args,
            store: location.in_words(),
            client: &client,
            limit: limit.map(|limit| limit.saturating_sub(began.elapsed())),
        };
        // The program ends and the lock is released even if a panic unwinds through here.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(run.hold(&mut signals))
        }));
        // No caller waits for the releases that are still pending: a lease ends what is left.
        let _ = runtime.block_on(signals.interruptible(client.shutdown(Duration::ZERO)));
        let bug = "lockkit has a bug; the program was terminated";
        outcome.map_err(|_| Failure::new(Code::SOFTWARE, bug))?
    })?;
    if ran.interrupted && ran.code != Code::LOST {
        signals::die_of_interrupt();
    }
    Ok(ran.code)
}

/// Whether the command reports what happens.
fn reports(args: &RunArgs) -> bool {
    !args.quiet && (args.verbose || std::io::stderr().is_terminal())
}

/// Opens the store, and waits for one that cannot be reached as for a lock that is held.
async fn open(
    args: &RunArgs,
    location: &Location,
    limit: Option<Duration>,
) -> Result<LockClient, Failure> {
    let mut builder = location.builder(true)?.program(program(&args.command));
    if let Some(ttl) = args.ttl {
        builder = builder.lease(Lease::renewed(ttl));
    }
    if let Some(limit) = limit {
        builder = builder.wait(limit);
    }
    let mut opened = pin!(builder.connect());
    let patience = async {
        sleep(SLOW_STORE).await;
        let store = location.in_words();
        say(format_args!(
            "the store {store} does not respond yet; retrying"
        ));
    };
    let client = tokio::select! {
        client = &mut opened => client,
        () = patience, if reports(args) => opened.await,
    };
    Ok(client?)
}

/// The name of CMD, by which operators know its hold.
fn program(command: &[OsString]) -> String {
    let path = command.first().map(Path::new);
    let name = path.and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// One run, whose store is open.
struct Run<'a> {
    args: &'a RunArgs,
    /// The store in words.
    store: String,
    client: &'a LockClient,
    /// What is left of `--wait`.
    limit: Option<Duration>,
}

impl Run<'_> {
    async fn hold(&self, signals: &mut Signals) -> Result<Ran, Failure> {
        let args = self.args;
        let locks = self.locks()?;
        if self.client.backend().backend() == "memory" && !args.quiet {
            say("a `memory:` store excludes no other command; use a `file:` store or a server");
        }
        // Before the wait, which would be in vain.
        if let Some(note) = &args.note {
            lockkit::check_note(note)?;
            if !self.client.backend().capabilities().notes {
                let text = format!("the store {} keeps no notes; leave --note out", self.store);
                return Err(Failure::usage(text));
            }
        }
        let guard = signals.interruptible(self.acquire(&locks)).await??;
        if let Some(note) = &args.note {
            for guard in guard.guards() {
                signals.interruptible(guard.note(note)).await??;
            }
        }
        if args.verbose {
            for guard in guard.guards() {
                let (name, store, token) = (plain(guard.name()), &self.store, guard.token());
                say(format_args!("holds `{name}` in {store} with token {token}"));
            }
        }
        // The lines above may have taken longer than the lease: their reader may stand still.
        guard.check()?;
        let ran = self.run_program(&guard, signals).await;
        let lost = ran.as_ref().is_ok_and(|ran| ran.lost);
        let (mut keeps, mut was_held) = (false, false);
        if let Ok(Ran {
            kept: Some(until),
            lost: false,
            told_to_end: false,
            ..
        }) = ran
        {
            let kept = async {
                was_held = self.is_held(&guard, &locks).await;
                self.keep(&guard, until).await;
            };
            keeps = signals.interruptible(kept).await.is_ok();
        }
        let released = signals.interruptible(guard.release()).await;
        // A signal ends the stay, also one that comes now.
        keeps &= released.is_ok();
        let held = released.map_or(true, |released| held_to_the_end(released, lost));
        if keeps {
            let _ = signals.interruptible(self.client.drain()).await;
        }
        let mut ran = ran?;
        if !held && !was_held {
            ran.code = Code::LOST;
        }
        Ok(ran)
    }

    /// The locks of all names, that of NAME first.
    fn locks(&self) -> Result<Vec<Lock>, Failure> {
        let (client, args) = (self.client, self.args);
        // The shim gets the file of each, and the program's standard input.
        if args.also.len() + 2 > FILES {
            let most = FILES - 2;
            return Err(Failure::usage(format!(
                "--also can be there {most} times at most"
            )));
        }
        let lock = |name| -> lockkit::Result<Lock> {
            match args.permits {
                Some(permits) => client.semaphore(name, permits),
                None if args.shared => Ok(client.rw_lock(name)?.read()),
                None => client.lock(name),
            }
        };
        let names = [&args.name].into_iter().chain(&args.also);
        Ok(names.map(lock).collect::<lockkit::Result<_>>()?)
    }

    async fn run_program(&self, guard: &MultiGuard, signals: &mut Signals) -> Result<Ran, Failure> {
        let args = self.args;
        let is_first = |guard: &&Guard| *guard.name() == args.name;
        let Some(first) = guard.guards().iter().find(is_first) else {
            return Err(Failure::internal());
        };
        let mut environment = vec![
            ("LOCKKIT_NAME", args.name.as_str().to_owned()),
            ("LOCKKIT_TOKEN", first.token().to_string()),
            ("LOCKKIT_MODE", word(first.ticket().mode).to_owned()),
            (nested::HELD, nested::held_with(guard.guards())),
        ];
        // Empty and not removed: a `lockkit` in the program must not use the lock files of this host.
        if !args.keep_url && std::env::var("LOCKKIT_URL").is_ok_and(|url| has_password(&url)) {
            environment.push(("LOCKKIT_URL", String::new()));
        }
        let plan = Plan {
            kill_after: args.kill_after,
            deadline: now() + guard.remaining(),
            leave: args.leave,
            foreground: false,
        };
        let store = self.client.store::<FileStore>();
        let files = guard.guards().iter().map(Guard::holder);
        let files: Vec<_> = files
            .filter_map(|holder| store?.open_file(holder))
            .collect();
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let child = Child::start(plan, &args.command, environment, &files).map_err(|error| {
            Failure::new(Code::SYSTEM, format!("cannot start a process: {error}"))
        })?;
        Ok(supervise(guard, child, signals, args).await)
    }

    async fn acquire(&self, locks: &[Lock]) -> Result<MultiGuard, Failure> {
        nested::refuse(locks).await?;
        let all = MultiLock::new(locks.iter().cloned())?;
        let mut attempt = pin!(self.attempt(&all));
        let outcome = tokio::select! {
            outcome = &mut attempt => outcome,
            () = self.announce(locks), if reports(self.args) => attempt.await,
        };
        match outcome {
            Ok(Some(guard)) => return Ok(guard),
            Ok(None) | Err(Error::Timeout { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // If the store does not respond now, the store is the reason, and not another holder.
        let held = self.held(locks).await?;
        let code = Code(self.args.conflict_exit_code);
        if self.args.quiet {
            return Err(Failure::silent(code));
        }
        let text = format!("{held}; the program was not started");
        Err(Failure::new(code, text))
    }

    async fn attempt(&self, locks: &MultiLock) -> lockkit::Result<Option<MultiGuard>> {
        match self.limit {
            Some(limit) if limit.is_zero() => locks.try_acquire().await,
            Some(limit) => locks.acquire_timeout(limit).await.map(Some),
            None => locks.acquire().await.map(Some),
        }
    }

    /// Reports once for whom it waits.
    async fn announce(&self, locks: &[Lock]) {
        sleep(SHORT_WAIT).await;
        if let Ok(held) = self.held(locks).await {
            say(format_args!("waiting: {held}"));
        }
    }

    /// The holder of the first lock that has no room, in words; else of one that is held, and may be waited for. The
    /// locks of this command may be among them while it waits for the others.
    async fn held(&self, locks: &[Lock]) -> lockkit::Result<String> {
        let own = self.client.id().to_string();
        let mut held = None;
        for lock in locks {
            let Some(mut state) = lock.inspect().await? else {
                continue;
            };
            if state.holder_ids().all(|id| id.starts_with(&own)) {
                continue;
            }
            let sentence = sentence(&state, "is");
            state.holders.retain(|holder| !holder.id.starts_with(&own));
            if !nested::fits(lock, &state.holders) {
                return Ok(sentence);
            }
            held.get_or_insert(sentence);
        }
        let others = || format!("`{}` is held by others", plain(&self.args.name));
        Ok(held.unwrap_or_else(others))
    }

    /// Whether the store says that the program has ended under its locks: what becomes of them while they are
    /// kept says nothing about it.
    async fn is_held(&self, guard: &MultiGuard, locks: &[Lock]) -> bool {
        for lock in locks {
            let own = guard.guards().iter().find(|own| own.name() == lock.name());
            let id = own.map(|own| own.holder().to_string());
            let state = lock.inspect().await.ok().flatten();
            let holds = |state: LockState| state.holder_ids().any(|of| Some(of) == id.as_deref());
            if !state.is_some_and(holds) {
                return false;
            }
        }
        true
    }

    /// Waits until then, unless the release leaves the lock to a lease of the rest, for which `drain` waits: a
    /// longer lease cannot be made shorter.
    async fn keep(&self, guard: &MultiGuard, until: Instant) {
        let rest = until.saturating_duration_since(Instant::now());
        if !rest.is_zero() && reports(self.args) {
            let (name, rest) = (plain(&self.args.name), rounded(rest));
            say(format_args!("keeps `{name}` for {rest} more"));
        }
        if rest <= guard.remaining() {
            tokio::select! {
                () = sleep_until(until) => {}
                _ = guard.lost() => {}
            }
        }
    }
}

/// The mode of a hold, as CMD reads it.
const fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "shared",
        Mode::Permit { .. } => "permit",
        _ => "exclusive",
    }
}

/// Whether the lock was held until its release. Prints a loss that was not `reported`.
///
/// A failed release is not a loss: it is retried until the client is shut down, and then the lease ends
/// the hold.
fn held_to_the_end(released: lockkit::Result<()>, reported: bool) -> bool {
    match released {
        Err(error @ Error::Lost { .. }) => {
            if !reported {
                say(error);
            }
            return false;
        }
        Err(error) => say(format_args!("{error}; the lease ends the hold")),
        Ok(()) => {}
    }
    true
}
