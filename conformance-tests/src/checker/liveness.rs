//! Liveness: what must be true, given which faults there were and for how long.

use std::time::Duration;

use super::Violation;
use super::holds::by_lock;
use crate::history::{History, Op, Phase};

/// Checks that every request that was open at the last repair, or came after it, was granted within `bound`. P3.
/// One for several locks may fail instead, if it lost a lock while it waited for another.
///
/// # Errors
/// - [`Violation`] with the repair and the request that was refused, or not served in time.
pub fn everyone_served(history: &History, bound: Duration) -> Result<(), Violation> {
    let bound = nanos(bound);
    let heal = history.events().iter().rfind(|event| event.op == Op::Heal);
    for hold in by_lock(history).iter().flatten() {
        let healed = heal.map_or(0, |heal| heal.at);
        let last = healed.max(hold.invoke.at).saturating_add(bound);
        let served = hold.answer.is_some_and(|answer| {
            let granted = answer.phase == Phase::Ok || hold.lost.is_some();
            answer.at <= healed || (granted && answer.at <= last)
        });
        if !served {
            let first = heal.unwrap_or(hold.invoke);
            let second = hold.answer.unwrap_or(hold.invoke);
            return Err(Violation::new("a waiter was not served", first, second));
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
    use crate::history::Event;

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
    fn a_refusal_after_the_repair_serves_nobody() {
        let faults = [info(20, 0, Op::Fault), info(40, 0, Op::Heal)];
        let failed = |at| {
            [
                Event::new(5, 1, "a", Op::Acquire, Phase::Invoke),
                Event::new(at, 1, "a", Op::Acquire, Phase::Fail),
            ]
        };
        let with = |parts: &[&[Event]]| everyone_served(&history(parts), NANO * 10);
        assert_eq!(with(&[&faults, &failed(30)]), Ok(()));
        let rule = "a waiter was not served";
        refused(&with(&[&faults, &failed(45)]), rule, 40, 45);
        refused(&with(&[&failed(45)]), rule, 5, 45);
        let lost = [info(46, 1, Op::Lost)];
        assert_eq!(with(&[&faults, &failed(45), &lost]), Ok(()));
    }
}
