//! Liveness: what must be true, given which faults there were and for how long.

use std::time::Duration;

use super::Violation;
use super::holds::by_lock;
use crate::history::{Event, History, Op};

/// Checks that a hold that was lost said so before somebody else took the lock. P2.
///
/// `slack` is what the machine may take to run a task that is ready: it is added to the moment of
/// the take-over.
///
/// # Errors
/// - [`Violation`] with the late loss and the take-over.
pub fn loss_before_take_over(history: &History, slack: Duration) -> Result<(), Violation> {
    let slack = nanos(slack);
    for holds in by_lock(history) {
        let mut grants: Vec<(&Event, u64)> = holds.iter().filter_map(|hold| hold.grant()).collect();
        grants.sort_by_key(|(_, token)| *token);
        for hold in &holds {
            let (Some((_, token)), Some(lost)) = (hold.grant(), hold.lost) else {
                continue;
            };
            let next = grants.partition_point(|(_, its)| *its <= token);
            if let Some((taken, _)) = grants.get(next)
                && lost.at > taken.at.saturating_add(slack)
            {
                return Err(Violation::new("the loss came late", taken, lost));
            }
        }
    }
    Ok(())
}

/// Checks that every request that was open at the last repair, or came after it, ended within `bound`. P3.
///
/// # Errors
/// - [`Violation`] with the repair and the request that was not served in time.
pub fn everyone_served(history: &History, bound: Duration) -> Result<(), Violation> {
    let bound = nanos(bound);
    let heal = history.events().iter().rfind(|event| event.op == Op::Heal);
    for hold in by_lock(history).iter().flatten() {
        let since = heal.map_or(0, |heal| heal.at).max(hold.invoke.at);
        let served = hold.answer.map(|answer| answer.at);
        if served.is_none_or(|at| at > since.saturating_add(bound)) {
            let first = heal.unwrap_or(hold.invoke);
            let second = hold.answer.unwrap_or(hold.invoke);
            return Err(Violation::new("a waiter was not served", first, second));
        }
    }
    Ok(())
}

/// Checks that no hold was lost unless something was broken shortly before: between a fault, or an
/// operator's break, and `grace` after its repair.
///
/// # Errors
/// - [`Violation`] with the grant and its loss.
pub fn no_spurious_loss(history: &History, grace: Duration) -> Result<(), Violation> {
    let grace = nanos(grace);
    let mut broken = false;
    let mut healed: Option<u64> = None;
    let mut excused = Vec::new();
    for event in history.events() {
        match event.op {
            Op::Fault => broken = true,
            Op::Heal => {
                broken = false;
                healed = Some(event.at);
            }
            Op::Break => healed = Some(event.at),
            Op::Lost => {
                let recent = healed.is_some_and(|at| event.at <= at.saturating_add(grace));
                if broken || recent {
                    excused.push((event.process, event.hold));
                }
            }
            _ => {}
        }
    }
    excused.sort_unstable();
    for hold in by_lock(history).iter().flatten() {
        if let (Some((grant, _)), Some(lost)) = (hold.grant(), hold.lost)
            && excused.binary_search(&(lost.process, lost.hold)).is_err()
        {
            return Err(Violation::new("lost for no reason", grant, lost));
        }
    }
    Ok(())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Phase;

    const NANO: Duration = Duration::from_nanos(1);

    fn grant(id: u64, asked: u64, from: u64, token: u64) -> [Event; 2] {
        [
            Event::new(asked, id, "a", Op::Acquire, Phase::Invoke),
            Event::new(from, id, "a", Op::Acquire, Phase::Ok).with_token(token),
        ]
    }

    fn info(at: u64, id: u64, op: Op) -> Event {
        Event::new(at, id, "a", op, Phase::Info)
    }

    fn history(parts: &[&[Event]]) -> History {
        History::new(parts.iter().flat_map(|part| part.to_vec()).collect())
    }

    #[track_caller]
    fn refused(result: &Result<(), Violation>, rule: &str, first: u64, second: u64) {
        let violation = result.clone().unwrap_err();
        assert_eq!(violation.rule(), rule);
        let text = violation.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains(&format!("\"at\":{first},")), "{text}");
        assert!(lines[2].contains(&format!("\"at\":{second},")), "{text}");
    }

    #[test]
    fn a_loss_comes_before_the_next_holder() {
        let holds = [grant(1, 0, 10, 1), grant(2, 5, 50, 2)].concat();
        let at = |at| history(&[&holds, &[info(at, 1, Op::Lost)]]);
        assert_eq!(loss_before_take_over(&at(49), Duration::ZERO), Ok(()));
        assert_eq!(loss_before_take_over(&at(55), NANO * 5), Ok(()));
        refused(
            &loss_before_take_over(&at(56), NANO * 5),
            "the loss came late",
            50,
            56,
        );
    }

    #[test]
    fn everyone_is_served_after_the_repair() {
        let faults = [info(20, 0, Op::Fault), info(40, 0, Op::Heal)];
        let served = history(&[&faults, &grant(1, 0, 10, 1), &grant(2, 5, 50, 2)]);
        assert_eq!(everyone_served(&served, NANO * 10), Ok(()));
        refused(
            &everyone_served(&served, NANO * 9),
            "a waiter was not served",
            40,
            50,
        );
        let waits = [Event::new(45, 3, "a", Op::Acquire, Phase::Invoke)];
        let starved = history(&[&faults, &waits]);
        refused(
            &everyone_served(&starved, NANO * 99),
            "a waiter was not served",
            40,
            45,
        );
    }

    #[test]
    fn a_loss_needs_a_reason() {
        let hold = grant(1, 0, 10, 1);
        let lost = |at| [info(at, 1, Op::Lost)];
        let spurious = history(&[&hold, &lost(30)]);
        let rule = "lost for no reason";
        refused(&no_spurious_loss(&spurious, NANO), rule, 10, 30);
        let faults = [info(20, 0, Op::Fault), info(40, 0, Op::Heal)];
        for (at, excused) in [(30, true), (45, true), (46, false)] {
            let result = no_spurious_loss(&history(&[&hold, &faults, &lost(at)]), NANO * 5);
            assert_eq!(result.is_ok(), excused, "{at}");
        }
        let broken = history(&[&hold, &[info(20, 0, Op::Break)], &lost(24)]);
        assert_eq!(no_spurious_loss(&broken, NANO * 5), Ok(()));
    }
}
