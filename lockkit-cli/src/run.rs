//! `lockkit run`: acquire, run the program, release.

use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

use lockkit::file::FileStore;
use lockkit::{Error, Guard, Lease, Lock, LockClient};
use nix::sys::signal::Signal;
use rustix::process::getpgrp;

use crate::args::{RunArgs, StoreArgs};
use crate::attend::{Ran, attend};
use crate::clock::now;
use crate::exit::{Code, Failure, chain};
use crate::job::{Job, suspend};
use crate::link::End;
use crate::output::say;
use crate::plan::Plan;
use crate::render::{plain, sentence};
use crate::signals::{self, Signals};
use crate::store::{connect, failure, runtime};

/// How long a wait is too short to talk about.
const PATIENCE: Duration = Duration::from_millis(300);

/// Runs the program under the lock. To be called by the main thread before there is any other.
pub(crate) fn run(args: &RunArgs, store: &StoreArgs) -> Result<Code, Failure> {
    let mut signals =
        Signals::listen().map_err(|error| Failure::from_error(Code::System, &error))?;
    let runtime = runtime()?;
    let client = runtime.block_on(async {
        tokio::select! {
            client = connect(store) => client.map(Ok),
            signal = interruption(&mut signals) => Ok(Err(signal)),
        }
    })?;
    let client = match client {
        Ok(client) => client,
        Err(signal) => return Ok(Code::Signal(signal as i32)),
    };
    // The program dies and the lock is released also when a fault unwinds through here.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(hold(args, &client, &mut signals))
    }));
    let closed = runtime.block_on(async {
        tokio::select! {
            closed = client.shutdown(Duration::ZERO) => closed,
            _ = interruption(&mut signals) => Ok(()),
        }
    });
    if let Err(error) = closed {
        say(format_args!("{}; its lease will end it", chain(&error)));
    }
    let (code, interrupted) = outcome
        .map_err(|_| Failure::new(Code::Software, "a fault in lockkit; the program was ended"))??;
    if interrupted {
        signals::die_of_interrupt();
    }
    Ok(code)
}

/// A signal that asks `lockkit run` to give up what it waits for.
async fn interruption(signals: &mut Signals) -> Signal {
    loop {
        match signals.next().await {
            Signal::SIGTSTP => suspend(false),
            Signal::SIGCONT | Signal::SIGWINCH => {}
            signal => return signal,
        }
    }
}

/// Acquires, runs and releases. Also says whether Ctrl-C ended the program.
async fn hold(
    args: &RunArgs,
    client: &LockClient,
    signals: &mut Signals,
) -> Result<(Code, bool), Failure> {
    let mut lock = client
        .lock(args.name.as_str())
        .map_err(|error| failure(&error))?;
    if let Some(ttl) = args.ttl {
        lock = lock
            .with_lease(Lease::renewed(ttl))
            .map_err(|error| failure(&error))?;
    }
    if client.backend().backend() == "memory" && !args.quiet {
        say("a `memory:` store is private to this one command: it keeps nobody else out");
    }
    let acquired = tokio::select! {
        guard = acquire(args, client, &lock) => guard?,
        signal = interruption(signals) => return Ok((Code::Signal(signal as i32), false)),
    };
    let Some(guard) = acquired else {
        return Ok((Code::NotAcquired, false));
    };
    if args.verbose {
        say(format_args!(
            "holds `{}` with token {}",
            plain(&args.name),
            guard.token()
        ));
    }
    let ran = supervise(args, &guard, signals).await;
    let told = ran.as_ref().is_ok_and(|ran| ran.lost);
    let kept = release(guard, signals, told).await;
    let ran = ran?;
    let code = match ran.end {
        _ if ran.lost || !kept => Code::Lost,
        Some(End::Exited(code)) => Code::Own(code),
        Some(End::Killed(signal)) => Code::Signal(signal),
        Some(End::NotStarted(errno)) => {
            let error = std::io::Error::from_raw_os_error(errno);
            let message = format!("cannot start a process: {error}");
            return Err(Failure::new(Code::System, message));
        }
        None => {
            say("the process between lockkit and the program was killed, and the program with it");
            Code::Signal(Signal::SIGKILL as i32)
        }
    };
    Ok((code, ran.interrupted))
}

async fn supervise(args: &RunArgs, guard: &Guard, signals: &mut Signals) -> Result<Ran, Failure> {
    let environment = [
        ("LOCKKIT_NAME", args.name.as_str().to_owned()),
        ("LOCKKIT_TOKEN", guard.token().to_string()),
    ];
    let plan = Plan {
        kill_after: args.kill_after,
        leave: args.leave,
        home: getpgrp(),
        command: args.command.clone(),
    };
    let job = Job::start(&plan, environment, now() + guard.remaining())
        .map_err(|error| Failure::new(Code::System, format!("cannot start a process: {error}")))?;
    Ok(attend(guard, job, signals, args.kill_after).await)
}

/// Waits for the lock; `None` if it stayed with others.
async fn acquire(
    args: &RunArgs,
    client: &LockClient,
    lock: &Lock,
) -> Result<Option<Guard>, Failure> {
    let talks = !args.quiet && (args.verbose || std::io::stderr().is_terminal());
    let mut attempt = pin!(attempt(args, lock));
    let outcome = tokio::select! {
        outcome = &mut attempt => outcome,
        () = announce(client, lock), if talks => attempt.await,
    };
    match outcome {
        Ok(Some(guard)) => Ok(Some(guard)),
        Ok(None) | Err(Error::Timeout { .. }) => {
            if !args.quiet {
                say(format_args!(
                    "{}; nothing was run",
                    held(client, lock).await
                ));
            }
            Ok(None)
        }
        Err(error) => Err(failure(&error)),
    }
}

async fn attempt(args: &RunArgs, lock: &Lock) -> lockkit::Result<Option<Guard>> {
    match args.wait {
        _ if args.no_wait => lock.try_acquire().await,
        Some(limit) if limit.is_zero() => lock.try_acquire().await,
        Some(limit) => lock.acquire_timeout(limit).await.map(Some),
        None => lock.acquire().await.map(Some),
    }
}

/// Says once for whom it waits.
async fn announce(client: &LockClient, lock: &Lock) {
    tokio::time::sleep(PATIENCE).await;
    say(format_args!("waits: {}", held(client, lock).await));
}

/// Who has the lock, in words; with the number of the process where the store is of this machine.
async fn held(client: &LockClient, lock: &Lock) -> String {
    let state = match lock.inspect().await {
        Ok(Some(state)) if !state.holders.is_empty() => sentence(&state),
        _ => return format!("`{}` is held by others", plain(lock.name())),
    };
    let process = match client.store::<FileStore>() {
        Some(store) => store.holder_pid(lock.name()).await.ok().flatten(),
        None => None,
    };
    match process {
        Some(process) => format!("{state}, process {process}"),
        None => state,
    }
}

/// Releases, and says whether the hold stood until then; a loss only if it has not been `told` yet.
///
/// A release without an answer is not a loss: it goes on until the client is shut down, and then the
/// lease ends it.
async fn release(guard: Guard, signals: &mut Signals, told: bool) -> bool {
    let released = tokio::select! {
        released = guard.release() => released,
        _ = interruption(signals) => Ok(()),
    };
    match released {
        Ok(()) => true,
        Err(error @ Error::Lost { .. }) => {
            if !told {
                say(chain(&error));
            }
            false
        }
        Err(error) => {
            say(format_args!(
                "{}; the lease will end the hold",
                chain(&error)
            ));
            true
        }
    }
}
