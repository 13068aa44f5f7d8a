//! What must be true of processes that are stopped during a hold, and of the others.

use std::collections::{HashMap, HashSet};

use super::Violation;
use crate::history::{Event, History, Op, Phase};

/// A hold: its process and its number there.
type Id = (u32, u64);

/// The process of faults that concern all.
const EVERYBODY: u32 = 0;

const fn id(event: &Event) -> Id {
    (event.process, event.hold)
}

/// Checks that no guarded write was carried out that began after a later hold was known of. P0.
///
/// # Errors
/// - [`Violation`] with the later grant and the write.
pub fn stale_writes_refused(history: &History) -> Result<(), Violation> {
    let mut highest: HashMap<&str, &Event> = HashMap::new();
    // The latest grant that was known when the write began.
    let mut begun: HashMap<Id, &Event> = HashMap::new();
    for event in history.events() {
        match (event.op, event.phase) {
            (Op::Acquire, Phase::Ok) => {
                let last = highest.entry(&event.lock).or_insert(event);
                if last.token < event.token {
                    *last = event;
                }
            }
            (Op::Write, Phase::Invoke) => {
                if let Some(last) = highest.get(&*event.lock) {
                    begun.insert(id(event), last);
                }
            }
            (Op::Write, Phase::Ok) => {
                if let Some(last) = begun.get(&id(event))
                    && last.token > event.token
                {
                    return Err(Violation::new("a stale write was done", last, event));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a process which was never stopped during a hold lost nothing: no check failed, no write was
/// refused, no loss was told. A stop of a process is a fault with the number of that process, and its
/// end a repair; those of process zero concern all, as a restart of the server does.
///
/// # Errors
/// - [`Violation`] with the request for the lock and the first sign of its loss.
pub fn no_loss_without_a_stop(history: &History) -> Result<(), Violation> {
    let mut asked: HashMap<Id, &Event> = HashMap::new();
    let mut stopped: HashSet<u32> = HashSet::new();
    let mut resumed: HashMap<u32, u64> = HashMap::new();
    for event in history.events() {
        match (event.op, event.phase) {
            (Op::Fault, _) => {
                stopped.insert(event.process);
            }
            (Op::Heal, _) => {
                stopped.remove(&event.process);
                resumed.insert(event.process, event.at);
            }
            (Op::Acquire, Phase::Invoke) => {
                asked.insert(id(event), event);
            }
            (Op::Lost, _) | (Op::Check | Op::Write | Op::Release, Phase::Fail) => {
                let Some(asked) = asked.get(&id(event)) else {
                    continue;
                };
                let excused = [event.process, EVERYBODY].into_iter().any(|process| {
                    let since = resumed.get(&process);
                    stopped.contains(&process) || since.is_some_and(|at| *at >= asked.at)
                });
                if !excused {
                    return Err(Violation::new("lost without a stop", asked, event));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, process: u32, op: Op, phase: Phase) -> Event {
        Event::new(at, 1, "a", op, phase).with_process(process)
    }

    fn write(process: u32, from: u64, to: u64, token: u64, phase: Phase) -> [Event; 2] {
        [
            event(from, process, Op::Write, Phase::Invoke),
            event(to, process, Op::Write, phase).with_token(token),
        ]
    }

    fn grant(process: u32, at: u64, token: u64) -> Event {
        event(at, process, Op::Acquire, Phase::Ok).with_token(token)
    }

    fn history(parts: &[&[Event]]) -> History {
        History::new(parts.iter().flat_map(|part| part.to_vec()).collect())
    }

    #[test]
    fn a_write_after_a_later_grant_must_be_refused() {
        let grants = [grant(1, 10, 7), grant(2, 50, 8)];
        let with = |writes: &[Event]| stale_writes_refused(&history(&[&grants, writes]));
        assert_eq!(with(&write(1, 20, 30, 7, Phase::Ok)), Ok(()));
        // Begun before: the store may have carried it out before the later grant.
        assert_eq!(with(&write(1, 49, 60, 7, Phase::Ok)), Ok(()));
        assert_eq!(with(&write(1, 60, 70, 7, Phase::Fail)), Ok(()));
        assert_eq!(with(&write(2, 60, 70, 8, Phase::Ok)), Ok(()));
        let violation = with(&write(1, 60, 70, 7, Phase::Ok)).unwrap_err();
        assert_eq!(violation.rule(), "a stale write was done");
    }

    #[test]
    fn only_the_stopped_may_lose() {
        let asked = [event(10, 1, Op::Acquire, Phase::Invoke)];
        let stop = |process, from, to| {
            [
                event(from, process, Op::Fault, Phase::Info),
                event(to, process, Op::Heal, Phase::Info),
            ]
        };
        let signs = [
            (Op::Lost, Phase::Info),
            (Op::Check, Phase::Fail),
            (Op::Write, Phase::Fail),
            (Op::Release, Phase::Fail),
        ];
        for (op, phase) in signs {
            let sign = [event(50, 1, op, phase)];
            let with = |stop: &[Event]| no_loss_without_a_stop(&history(&[&asked, &sign, stop]));
            for (process, from, to, excused) in [
                (1, 20, 40, true),
                (1, 20, 60, true),
                (1, 5, 15, true),
                (1, 5, 9, false),
                (1, 60, 70, false),
                (2, 20, 40, false),
                (0, 20, 40, true),
                (0, 5, 9, false),
            ] {
                let result = with(&stop(process, from, to));
                assert_eq!(result.is_ok(), excused, "{op:?} {process} {from} {to}");
            }
            assert!(with(&[]).is_err());
        }
    }
}
