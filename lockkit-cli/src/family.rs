//! The processes of a program: its group, and on Linux everything that descends from it.

use std::time::Duration;

use rustix::process::{
    Pid, Signal, getpgid, getpid, kill_process, kill_process_group, test_kill_process_group,
};

/// Whether this system shows which processes descend from this one, and makes it the parent of those that
/// lose theirs.
pub(crate) const TELLS_DESCENDANTS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// How long killed processes may take to vanish.
pub(crate) const DEATH: Duration = Duration::from_secs(5);

/// Makes this process the parent of orphans among its descendants, so that it sees their end. Where the
/// system cannot do it, the first process collects them.
pub(crate) fn adopt_orphans() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    group: Pid,
    parent: Pid,
}

pub(crate) fn has_members(group: Pid) -> bool {
    test_kill_process_group(group) != Err(rustix::io::Errno::SRCH)
}

/// Sends a signal to the members of a group.
pub(crate) fn send(signal: Signal, group: Pid) {
    // It fails if the group has no member that we may signal.
    let _ = kill_process_group(group, signal);
}

/// Sends a signal to the members of the group of `leader` and to processes that have left it: every other descendant of
/// this process, or where the system does not show them, the group that the leader has moved to. Each process gets it
/// once. `collected`: whether the leader has ended and was waited for.
pub(crate) fn send_to_all(signal: Signal, leader: Pid, collected: bool) {
    let family = descendants(&[]);
    let sees = !family.is_empty();
    let (members, others): (Vec<_>, Vec<_>) = family
        .into_iter()
        .partition(|it: &Process| it.group == leader);
    // Without the leader and members, its number may have become that of another group.
    if !(collected && sees && members.is_empty()) {
        send(signal, leader);
    }
    if !TELLS_DESCENDANTS
        && let Ok(group) = getpgid(Some(leader))
        && group != leader
    {
        send(signal, group);
    }
    for process in others {
        let _ = kill_process(process.pid, signal);
    }
}

/// The running descendants of this process, without `but` and their descendants; none where the system does
/// not show them.
pub(crate) fn descendants(but: &[Pid]) -> Vec<Process> {
    let mut others = processes();
    others.retain(|process| !but.contains(&process.pid));
    let mut family = Vec::new();
    let mut parents = vec![getpid()];
    while let Some(parent) = parents.pop() {
        let children = others.extract_if(.., |process| process.parent == parent);
        for child in children {
            parents.push(child.pid);
            family.push(child);
        }
    }
    family
}

/// All processes except zombies. One that begins or ends at the same time may be missing.
fn processes() -> Vec<Process> {
    let entries = TELLS_DESCENDANTS.then(|| std::fs::read_dir("/proc").ok());
    let entries = entries.flatten().into_iter().flatten();
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let numbers = names.filter_map(|name| name.to_str()?.parse::<i32>().ok());
    let process = |number| {
        let stat = std::fs::read(format!("/proc/{number}/stat")).ok()?;
        parse(&String::from_utf8_lossy(&stat))
    };
    numbers.filter_map(process).collect()
}

/// Reads `pid (name) state parent group ..`; `None` for a zombie. The name may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (_, facts) = rest.rsplit_once(") ")?;
    let mut facts = facts.split(' ');
    let state = facts.next()?;
    let number = |text: Option<&str>| Pid::from_raw(text?.parse().ok()?);
    let (parent, group) = (number(facts.next())?, number(facts.next())?);
    (!matches!(state, "Z" | "X")).then_some(Process {
        pid: number(Some(pid))?,
        group,
        parent,
    })
}
