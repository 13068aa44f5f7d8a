//! `lockkit run`: acquire, run the program, release.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

use lockkit::contract::{Renewal, Ticket};
use lockkit::file::FileStore;
use lockkit::{ClientId, EndsBy, Error, Guard, HolderId, Lock, LockClient};
use nix::sys::signal::Signal;
use tokio::time::{Instant, timeout};

use crate::args::RunArgs;
use crate::child::Child;
use crate::clock::now;
use crate::exit::{Code, Failure};
use crate::ipc::End;
use crate::output::say;
use crate::plan::Plan;
use crate::render::{plain, rounded, sentence};
use crate::signals::{self, Signals};
use crate::store::{Location, StoreOptions, has_password, runtime};
use crate::supervise::{Ran, supervise};

/// A shorter wait for the lock is not reported.
const SHORT_WAIT: Duration = Duration::from_millis(300);

/// A store that takes longer to open is reported: it is slow, or cannot be reached.
const SLOW_STORE: Duration = Duration::from_secs(1);

/// The longest time that the last renewal may take.
const LAST_RENEWAL: Duration = Duration::from_secs(2);

/// Runs the program under the lock. To be called by the main thread before there is any other.
pub(crate) fn run(args: &RunArgs, url: Option<&str>) -> Result<Code, Failure> {
    let mut signals = Signals::listen()?;
    let location = Location::of(url)?;
    if !args.quiet
        && std::io::stderr().is_terminal()
        && let Location::Embedded(dir) = &location
    {
        let dir = plain(dir.display());
        say(format_args!(
            "the locks are files in `{dir}`: they exclude programs on this host only"
        ));
    }
    let runtime = runtime()?;
    let began = Instant::now();
    let client = runtime.block_on(async {
        tokio::select! {
            client = open(args, &location) => client.map(Ok),
            code = signals.interruption() => Ok(Err(code)),
        }
    })?;
    let client = match client {
        Ok(client) => client,
        Err(code) => return Ok(code),
    };
    let run = Run {
        args,
        label: location.label(),
        client: &client,
        limit: args.wait.map(|limit| limit.saturating_sub(began.elapsed())),
    };
    // The program ends and the lock is released even if a panic unwinds through here.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(run.hold(&mut signals))
    }));
    // No caller waits for the releases that are still pending: a lease ends what is left.
    let _ = runtime.block_on(async {
        tokio::select! {
            closed = client.shutdown(Duration::ZERO) => closed,
            _ = signals.interruption() => Ok(()),
        }
    });
    let (code, interrupted) = outcome
        .map_err(|_| Failure::new(Code::SOFTWARE, "lockkit has a bug; it ended the program"))??;
    if interrupted {
        signals::die_of_interrupt();
    }
    Ok(code)
}

/// Whether the command reports what happens.
fn reports(args: &RunArgs) -> bool {
    !args.quiet && (args.verbose || std::io::stderr().is_terminal())
}

/// Opens the store, and waits for one that cannot be reached as for a lock that is held.
async fn open(args: &RunArgs, location: &Location) -> Result<LockClient, Failure> {
    let options = StoreOptions {
        creates: true,
        ttl: args.ttl,
        patience: args.wait.or(args.no_wait.then_some(Duration::ZERO)),
    };
    let mut opened = pin!(location.open(options));
    let patience = async {
        tokio::time::sleep(SLOW_STORE).await;
        say(format_args!(
            "the store {} does not respond yet; retrying",
            location.label()
        ));
    };
    tokio::select! {
        client = &mut opened => client,
        () = patience, if reports(args) => opened.await,
    }
}

/// One run, whose store is open.
struct Run<'a> {
    args: &'a RunArgs,
    /// The store in words.
    label: String,
    client: &'a LockClient,
    /// What is left of `--wait`.
    limit: Option<Duration>,
}

impl Run<'_> {
    /// Acquires, runs and releases. Also says whether Ctrl-C ended the program.
    async fn hold(&self, signals: &mut Signals) -> Result<(Code, bool), Failure> {
        let args = self.args;
        let lock = self.client.lock(args.name.as_str())?;
        if self.client.backend().backend() == "memory" && !args.quiet {
            say("a `memory:` store excludes no other command; use a `file:` store or a server");
        }
        let acquired = tokio::select! {
            guard = self.acquire(&lock) => guard?,
            code = signals.interruption() => return Ok((code, false)),
        };
        let Some(guard) = acquired else {
            return Ok((Code(args.conflict_exit_code), false));
        };
        let kept = args.at_least.map(|least| Instant::now() + least);
        if args.verbose {
            let (name, label, token) = (plain(&args.name), &self.label, guard.token());
            say(format_args!("holds `{name}` in {label} with token {token}"));
        }
        let ran = self.run_program(&guard, signals).await;
        let lost = ran.as_ref().is_ok_and(|ran| ran.lost);
        let guard = match kept {
            Some(until) if !lost && ran.is_ok() => self.keep(guard, until, signals).await,
            _ => Some(guard),
        };
        let held = match guard {
            Some(guard) => release(guard, signals, lost).await,
            None => true,
        };
        let ran = ran?;
        Ok((code(&ran, held)?, ran.interrupted))
    }

    async fn run_program(&self, guard: &Guard, signals: &mut Signals) -> Result<Ran, Failure> {
        let args = self.args;
        let mut environment = vec![
            ("LOCKKIT_NAME", args.name.as_str().to_owned()),
            ("LOCKKIT_TOKEN", guard.token().to_string()),
        ];
        // Empty and not removed: a `lockkit` in the program must not use the lock files of this host.
        if !args.keep_url && std::env::var("LOCKKIT_URL").is_ok_and(|url| has_password(&url)) {
            environment.push(("LOCKKIT_URL", String::new()));
        }
        let plan = Plan {
            kill_after: args.kill_after,
            notice: args.kill_after.min(guard.ticket().ttl / 3),
            leave: args.leave,
            foreground: false,
            command: args.command.clone(),
        };
        let lock = self.client.store::<FileStore>();
        let lock = lock.and_then(|store| store.open_file(guard.holder()));
        let until = now() + guard.remaining();
        let child = Child::start(plan, &environment, until, lock.as_ref().map(AsFd::as_fd))
            .map_err(|error| {
                Failure::new(Code::SYSTEM, format!("cannot start a process: {error}"))
            })?;
        Ok(supervise(guard, child, signals, args.kill_after).await)
    }

    /// Waits for the lock; `None` if others held it until the end of the wait.
    async fn acquire(&self, lock: &Lock) -> Result<Option<Guard>, Failure> {
        refuse_nested(lock).await?;
        let mut attempt = pin!(self.attempt(lock));
        let outcome = tokio::select! {
            outcome = &mut attempt => outcome,
            () = self.announce(lock), if reports(self.args) => attempt.await,
        };
        match outcome {
            Ok(Some(guard)) => Ok(Some(guard)),
            Ok(None) | Err(Error::Timeout { .. }) => {
                // If the store does not respond now, the store is the reason, and not another holder.
                let held = self.held(lock).await?;
                if !self.args.quiet {
                    say(format_args!("{held}; the program was not started"));
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn attempt(&self, lock: &Lock) -> lockkit::Result<Option<Guard>> {
        match self.limit {
            _ if self.args.no_wait => lock.try_acquire().await,
            Some(limit) if limit.is_zero() => lock.try_acquire().await,
            Some(limit) => lock.acquire_timeout(limit).await.map(Some),
            None => lock.acquire().await.map(Some),
        }
    }

    /// Reports once for whom it waits.
    async fn announce(&self, lock: &Lock) {
        tokio::time::sleep(SHORT_WAIT).await;
        if let Ok(held) = self.held(lock).await {
            say(format_args!("waiting: {held}"));
        }
    }

    /// The holder in words, with its process if the store is on this machine.
    async fn held(&self, lock: &Lock) -> lockkit::Result<String> {
        let mut held = match lock.inspect().await? {
            Some(state) if !state.holders.is_empty() => sentence(&state, "is"),
            _ => return Ok(format!("`{}` is held by others", plain(lock.name()))),
        };
        if let Some(store) = self.client.store::<FileStore>() {
            let holder = HolderId::new(ClientId::random(), 0);
            let ticket = Ticket::new(lock.name().clone(), holder, Duration::ZERO);
            // With the prefix of the URL.
            let name = self.client.backend().resolve(&ticket).name;
            if let Ok(Some(process)) = store.holder_pid(&name).await {
                held.push_str(&format!(", process {process}"));
            }
        }
        Ok(held)
    }

    /// Keeps the lock until then. Returns the guard, unless the lease ends the hold without the command.
    ///
    /// A lease that is longer than the rest cannot be made shorter: the command stays until then.
    async fn keep(&self, guard: Guard, until: Instant, signals: &mut Signals) -> Option<Guard> {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Some(guard);
        }
        if reports(self.args) {
            let (name, rest) = (plain(&self.args.name), rounded(rest));
            say(format_args!("keeps `{name}` for {rest} more"));
        }
        if rest > guard.remaining() && leave_to_lease(self.client, &guard, rest).await {
            guard.leak();
            return None;
        }
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            _ = guard.lost() => {}
            _ = signals.interruption() => {}
        }
        Some(guard)
    }
}

/// Makes the lease of a hold as long as `rest`; returns whether the store then keeps it without us.
async fn leave_to_lease(client: &LockClient, guard: &Guard, rest: Duration) -> bool {
    let can = client.backend().capabilities();
    let step = can.ttl_step.as_millis().max(1);
    let millis = rest.as_millis().next_multiple_of(step);
    let rest = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    // A store reports losses where a hold can also end with our connection.
    if can.ends_by != EndsBy::Lease || can.tells_loss || rest > can.max_ttl {
        return false;
    }
    let ticket = [guard.ticket().clone().with_ttl(rest)];
    let renewed = timeout(LAST_RENEWAL, client.backend().renew(&ticket)).await;
    let renewed = renewed.ok().and_then(|mut renewals| renewals.pop());
    matches!(renewed, Some(Ok(Renewal::Renewed { ttl, .. })) if ttl >= rest)
}

/// Refuses to wait for a lock that is held by the `lockkit run` that runs this one.
async fn refuse_nested(lock: &Lock) -> Result<(), Failure> {
    let inherited = |name| std::env::var(name).unwrap_or_default();
    if inherited("LOCKKIT_NAME") != lock.name().as_str() {
        return Ok(());
    }
    // The same token means the same store. If the store fails, the acquire reports it.
    let held = lock.inspect().await.ok().flatten();
    let held = held.filter(|state| !state.holders.is_empty());
    match held.and_then(|state| state.token) {
        Some(token) if token.to_string() == inherited("LOCKKIT_TOKEN") => {
            let name = plain(lock.name());
            let text = format!(
                "`{name}` is held by the `lockkit run` that runs this one, which would wait for itself; use another name"
            );
            Err(Failure::usage(text))
        }
        _ => Ok(()),
    }
}

/// How the command ends after a program that ran; `held` says that the lock was held until then.
fn code(ran: &Ran, held: bool) -> Result<Code, Failure> {
    Ok(match ran.end {
        _ if ran.lost || !held => Code::LOST,
        Some(End::Exited(code)) => Code(code),
        Some(End::Killed(signal)) => Code::of_signal(signal),
        Some(End::NotStarted(errno)) => {
            let error = std::io::Error::from_raw_os_error(errno);
            let message = format!("cannot start a process: {error}");
            return Err(Failure::new(Code::SYSTEM, message));
        }
        None => {
            say(
                "the shim, the parent process of the program, was killed; the program was killed too",
            );
            Code::of_signal(Signal::SIGKILL as i32)
        }
    })
}

/// Releases, and returns whether the lock was held until then. Prints a loss that was not `reported`.
///
/// A failed release is not a loss: it is retried until the client is shut down, and then the lease ends
/// the hold.
async fn release(guard: Guard, signals: &mut Signals, reported: bool) -> bool {
    let released = tokio::select! {
        released = guard.release() => released,
        _ = signals.interruption() => Ok(()),
    };
    match released {
        Ok(()) => true,
        Err(error @ Error::Lost { .. }) => {
            if !reported {
                say(error);
            }
            false
        }
        Err(error) => {
            say(format_args!("{error}; the lease ends the hold"));
            true
        }
    }
}
