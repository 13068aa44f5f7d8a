//! The processes of a server that leave its process group, as those of PostgreSQL do.
//!
//! Only Linux lets the guardian find them. Elsewhere they end by themselves when they see that the
//! server is gone, but are not frozen with it.

use std::io;

use rustix::process::Signal;

/// Makes every process whose parent dies a child of this one.
#[cfg(target_os = "linux")]
pub(super) fn adopt() -> io::Result<()> {
    let me = rustix::process::getpid();
    Ok(rustix::process::set_child_subreaper(Some(me))?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt() -> io::Result<()> {
    Ok(())
}

/// Sends it to every process below this one.
pub(super) fn signal(signal: Signal) {
    for pid in below() {
        // It may have ended a moment ago.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Waits until a child of this process has stopped, or ended. After the signal alone some of its threads go on for
/// milliseconds on a busy machine.
pub(crate) fn wait_for_stop(child: rustix::process::Pid) -> io::Result<()> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let ends = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(child), ends).map(drop)?)
}

/// Waits for the end of all that were killed, so that nothing of them is there when this returns.
pub(super) fn bury() {
    use rustix::process::{WaitOptions, wait};
    while let Ok(Some(_)) = wait(WaitOptions::empty()) {}
}

#[cfg(target_os = "linux")]
fn below() -> Vec<rustix::process::Pid> {
    let mut family = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let parents = parents();
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|it| it.1 == parent).map(|it| it.0));
        next += 1;
    }
    let below = family.into_iter().skip(1);
    below.filter_map(rustix::process::Pid::from_raw).collect()
}

#[cfg(not(target_os = "linux"))]
fn below() -> Vec<rustix::process::Pid> {
    Vec::new()
}

/// Every process of the machine with its parent.
#[cfg(target_os = "linux")]
fn parents() -> Vec<(i32, i32)> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // After the name, which may hold anything: the state, then the parent.
        let (_, rest) = stat.rsplit_once(')')?;
        Some((number, rest.split_whitespace().nth(1)?.parse().ok()?))
    };
    all.filter_map(read).collect()
}
