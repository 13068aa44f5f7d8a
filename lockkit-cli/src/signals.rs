//! Signals to `lockkit run`: blocked in all threads, and read one by one by a separate thread.
//!
//! There is no handler, and the mask is cleared before the program begins: it gets the dispositions that it
//! would have without lockkit, and no signal is blocked.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use crate::exit::{Code, Failure};

/// The signals that are passed on to the program.
const PASSED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// The numbers of those that ask a program to end.
pub(crate) const ENDS: [i32; 4] = [
    Signal::SIGHUP as i32,
    Signal::SIGINT as i32,
    Signal::SIGQUIT as i32,
    Signal::SIGTERM as i32,
];

/// Whether one of these ended a program: it may have handled the signal, and exits as shells do then, with 128 and
/// the number of the signal.
pub(crate) fn asked_to_end(end: ExitStatus) -> bool {
    let handled = end.code().map(|code| code - 128);
    let number = end.signal().or(handled);
    number.is_some_and(|number| ENDS.contains(&number))
}

/// The process group of this process, for `kill`.
const OUR_GROUP: Pid = Pid::from_raw(0);

#[derive(Debug)]
pub(crate) struct Signals {
    arrivals: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// Blocks them and begins to listen. To be called by the main thread before there is any other.
    ///
    /// A signal that was ignored when lockkit began, as under `nohup`, stays ignored. `SIGTTOU` is
    /// blocked without being read: the terminal is taken back from the background.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let heard: SigSet = PASSED
            .into_iter()
            .filter(|&signal| ignored & (1 << (signal as i32 - 1)) == 0)
            .collect();
        let mut blocked = heard;
        blocked.add(Signal::SIGTTOU);
        blocked.thread_block()?;
        let (arrived, arrivals) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                while let Ok(signal) = heard.wait() {
                    if arrived.send(signal).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self { arrivals })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.arrivals.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Does the work, unless a signal that asks this process to end comes first: then fails with the exit code
    /// for it. Until then, a stop signal stops the process.
    ///
    /// # Cancel safety
    /// As the work.
    pub(crate) async fn interruptible<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                signal = self.next() => match signal {
                    Signal::SIGTSTP => suspend(false),
                    Signal::SIGCONT | Signal::SIGWINCH => {}
                    signal => return Err(Failure::silent(Code::of_signal(signal as i32))),
                }
            }
        }
    }
}

/// Blocks every signal except SIGCHLD, for the shim: a signal to the process group reaches the program and
/// not the shim.
pub(crate) fn block_all_but_children() -> io::Result<()> {
    let mut all = SigSet::all();
    all.remove(Signal::SIGCHLD);
    Ok(all.thread_block()?)
}

/// Blocks no signal, as the program expects. Signals that came before take effect at once.
pub(crate) fn unblock_all() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Lets `signal` through to this thread while `send` runs. It takes effect before this returns.
fn unblocked(signal: Signal, send: impl FnOnce()) {
    let mut one = SigSet::empty();
    one.add(signal);
    let before = one.thread_swap_mask(SigmaskHow::SIG_UNBLOCK);
    send();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
}

/// Stops this process, or its group, until it is continued.
pub(crate) fn suspend(whole: bool) {
    unblocked(Signal::SIGTSTP, || {
        let _ = if whole {
            kill(OUR_GROUP, Signal::SIGTSTP)
        } else {
            raise(Signal::SIGTSTP)
        };
    });
}

/// Passes the Ctrl-C that ended the program on to our own group, which did not have the terminal, so that
/// a script around us ends as it would without lockkit. This process ends by it too.
pub(crate) fn die_of_interrupt() {
    unblocked(Signal::SIGINT, || {
        let _ = kill(OUR_GROUP, Signal::SIGINT);
    });
}

/// The signals that this process inherited as ignored, as a mask with bit `n - 1` for signal `n`.
/// Zero where the system does not show them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}
