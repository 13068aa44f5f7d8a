//! Safety: what must be true under all faults.

use std::collections::HashMap;

use super::Violation;
use super::holds::{Hold, by_lock};
use crate::history::{Event, History, Op, Phase};

/// Checks that the holds of one lock that believed in themselves at one moment fit each other: an exclusive
/// one is alone, and no more hold than the one of them with the most room allows. P1.
///
/// A hold believes from its first to its last look at which the guard stood, in each mode that it had; a
/// hold that was never looked at believes in nothing.
///
/// # Errors
/// - [`Violation`] with the last look of one hold and the first look of one that does not fit beside it.
pub fn beliefs_fit(history: &History) -> Result<(), Violation> {
    for holds in by_lock(history) {
        let mut beliefs: Vec<_> = holds.iter().flat_map(Belief::of).collect();
        beliefs.sort_by_key(|belief| belief.first.at);
        let mut held: Vec<Belief<'_>> = Vec::new();
        for belief in beliefs {
            held.retain(|other| other.last.at >= belief.first.at);
            if let Some(other) = held.iter().find(|other| other.excludes(&belief)) {
                let rule = "two holds at the same time";
                return Err(Violation::new(rule, other.last, belief.first));
            }
            held.push(belief);
            let room = held.iter().filter_map(|belief| belief.room).max();
            if let (Some(room), [first, .., last]) = (room, &held[..])
                && held.len() > usize::try_from(room).unwrap_or(usize::MAX)
            {
                let rule = "more holds than permits";
                return Err(Violation::new(rule, first.last, last.first));
            }
        }
    }
    Ok(())
}

/// From when to when a hold believed in itself.
struct Belief<'a> {
    first: &'a Event,
    last: &'a Event,
    room: Option<u32>,
}

impl<'a> Belief<'a> {
    fn of(hold: &Hold<'a>) -> impl Iterator<Item = Self> {
        hold.looks.iter().map(|&(first, last)| Self {
            first,
            last,
            room: first.room,
        })
    }

    const fn excludes(&self, other: &Self) -> bool {
        self.room.is_none() || other.room.is_none()
    }
}

/// Checks that no hold stood at a look after it was lost or had failed one. INV-5.
///
/// # Errors
/// - [`Violation`] with the first sign of the loss and the later look.
pub fn losses_are_final(history: &History) -> Result<(), Violation> {
    let mut lost: HashMap<(u32, u64), &Event> = HashMap::new();
    for event in history.events() {
        let hold = (event.process, event.hold);
        match (event.op, event.phase) {
            (Op::Lost, _) | (Op::Check, Phase::Fail) => {
                lost.entry(hold).or_insert(event);
            }
            (Op::Check, Phase::Ok) => {
                if let Some(lost) = lost.get(&hold) {
                    return Err(Violation::new("a lost hold came back", lost, event));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that tokens of one lock are unique and grow from hold to hold. INV-4.
///
/// A hold whose grant had arrived before another was asked for has the smaller token, and so has a
/// hold that believed in itself before the other did.
///
/// # Errors
/// - [`Violation`] with the two grants.
pub fn tokens_grow(history: &History) -> Result<(), Violation> {
    for holds in by_lock(history) {
        let mut grants: Vec<(&Hold<'_>, &Event, u64)> = holds
            .iter()
            .filter_map(|hold| hold.grant().map(|(event, token)| (hold, event, token)))
            .collect();
        unique(&mut grants)?;
        in_real_time(&grants)?;
        in_order_of_belief(grants)?;
    }
    Ok(())
}

fn unique(grants: &mut [(&Hold<'_>, &Event, u64)]) -> Result<(), Violation> {
    grants.sort_by_key(|(_, _, token)| *token);
    for pair in grants.windows(2) {
        if pair[0].2 == pair[1].2 {
            return Err(Violation::new("one token twice", pair[0].1, pair[1].1));
        }
    }
    Ok(())
}

fn in_real_time(grants: &[(&Hold<'_>, &Event, u64)]) -> Result<(), Violation> {
    let mut asked = grants.to_vec();
    asked.sort_by_key(|(hold, _, _)| hold.invoke.at);
    let mut given = grants.to_vec();
    given.sort_by_key(|(_, event, _)| event.at);
    let mut given = given.into_iter().peekable();
    let mut highest: Option<(&Event, u64)> = None;
    for (hold, event, token) in asked {
        while let Some((_, earlier, its)) =
            given.next_if(|(_, earlier, _)| earlier.at < hold.invoke.at)
        {
            if highest.is_none_or(|(_, most)| its > most) {
                highest = Some((earlier, its));
            }
        }
        if let Some((earlier, most)) = highest
            && token <= most
        {
            return Err(Violation::new(
                "a later hold with a smaller token",
                earlier,
                event,
            ));
        }
    }
    Ok(())
}

/// Of two holds that exclude each other, the later one has the larger token.
fn in_order_of_belief(mut grants: Vec<(&Hold<'_>, &Event, u64)>) -> Result<(), Violation> {
    grants.retain(|(hold, _, _)| hold.first.is_some());
    grants.sort_by_key(|(hold, _, _)| hold.first.map(|event| event.at));
    // The largest token so far, and the largest of an exclusive hold.
    let mut highest: Option<(&Event, u64)> = None;
    let mut exclusive: Option<(&Event, u64)> = None;
    for (hold, event, token) in grants {
        let excludes = hold.invoke.room.is_none();
        let before = if excludes { highest } else { exclusive };
        if let Some((earlier, most)) = before
            && token <= most
        {
            let rule = "a later hold with a smaller token";
            return Err(Violation::new(rule, earlier, event));
        }
        if highest.is_none_or(|(_, most)| token > most) {
            highest = Some((event, token));
        }
        if excludes {
            exclusive = Some((event, token));
        }
    }
    Ok(())
}

/// Checks that every reentry shows the token of its hold. INV-5.
///
/// # Errors
/// - [`Violation`] with the grant and the reentry.
pub fn reentry_keeps_token(history: &History) -> Result<(), Violation> {
    for hold in by_lock(history).iter().flatten() {
        let Some((grant, token)) = hold.grant() else {
            continue;
        };
        for reentry in &hold.reentries {
            if reentry.token != Some(token) {
                return Err(Violation::new("reentry with another token", grant, reentry));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::check;

    /// A hold that was asked for at `asked`, given at `from` and believed in until `until`.
    fn hold(id: u64, asked: u64, from: u64, until: u64, token: u64) -> Vec<Event> {
        vec![
            Event::new(asked, id, "a", Op::Acquire, Phase::Invoke),
            Event::new(from, id, "a", Op::Acquire, Phase::Ok).with_token(token),
            Event::new(from, id, "a", Op::Check, Phase::Ok),
            Event::new(until, id, "a", Op::Check, Phase::Ok),
            Event::new(until + 1, id, "a", Op::Release, Phase::Invoke),
        ]
    }

    fn history(holds: impl IntoIterator<Item = Vec<Event>>) -> History {
        History::new(holds.into_iter().flatten().collect())
    }

    #[track_caller]
    fn refused(history: &History, rule: &str, first: &str, second: &str) {
        let violation = check(history).unwrap_err();
        assert_eq!(violation.rule(), rule);
        let text = violation.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[1].contains(first) && lines[2].contains(second),
            "{text}"
        );
    }

    #[test]
    fn accepts_what_a_lock_does() {
        let other_lock = hold(3, 0, 5, 100, 1)
            .into_iter()
            .map(|mut event| {
                event.lock = "b".into();
                event
            })
            .collect();
        let good = history([hold(1, 0, 10, 20, 1), hold(2, 5, 30, 40, 2), other_lock]);
        assert_eq!(check(&good), Ok(()));
    }

    #[test]
    fn refuses_two_at_once() {
        let bad = history([hold(1, 0, 10, 30, 1), hold(2, 5, 25, 40, 2)]);
        refused(&bad, "two holds at the same time", "\"at\":30", "\"at\":25");
        // One inside the other, with a third between them in the order of their starts.
        let bad = history([
            hold(1, 0, 10, 90, 1),
            hold(2, 5, 25, 40, 2),
            hold(3, 5, 50, 60, 3),
        ]);
        assert!(beliefs_fit(&bad).is_err());
    }

    /// A hold that shares.
    fn shared(room: u32, mut events: Vec<Event>) -> Vec<Event> {
        for event in &mut events {
            event.room = Some(room);
        }
        events
    }

    #[test]
    fn holds_that_share_must_fit() {
        let reads = |id, from, until, token| shared(u32::MAX, hold(id, 0, from, until, token));
        let takes = |id, from, until, token| shared(2, hold(id, 0, from, until, token));
        // The second reader was granted first, but looked later.
        let readers = [reads(1, 10, 40, 2), reads(2, 20, 50, 1)];
        assert_eq!(check(&history(readers.clone())), Ok(()));
        let writer = [hold(3, 5, 45, 60, 3)];
        refused(
            &history(readers.into_iter().chain(writer)),
            "two holds at the same time",
            "\"at\":50",
            "\"at\":45",
        );
        let two = [
            takes(1, 10, 40, 1),
            takes(2, 20, 50, 2),
            takes(3, 41, 60, 3),
        ];
        assert_eq!(check(&history(two)), Ok(()));
        let three = [
            takes(1, 10, 40, 1),
            takes(2, 20, 50, 2),
            takes(3, 30, 60, 3),
        ];
        refused(
            &history(three),
            "more holds than permits",
            "\"at\":40",
            "\"at\":30",
        );
        let late = [hold(1, 0, 10, 20, 5), reads(2, 30, 40, 4)];
        assert!(tokens_grow(&history(late)).is_err());
    }

    #[test]
    fn writer_that_became_a_reader_shares_from_then_on() {
        let mut writer = hold(1, 0, 10, 20, 1);
        writer.extend(shared(
            u32::MAX,
            vec![
                Event::new(30, 1, "a", Op::Check, Phase::Ok),
                Event::new(50, 1, "a", Op::Check, Phase::Ok),
            ],
        ));
        let reader = |from| shared(u32::MAX, hold(2, 5, from, 60, 2));
        assert_eq!(check(&history([writer.clone(), reader(25)])), Ok(()));
        let early = history([writer.clone(), reader(15)]);
        let rule = "two holds at the same time";
        refused(&early, rule, "\"at\":20", "\"at\":15");
        let second = history([writer, hold(2, 5, 40, 60, 2)]);
        refused(&second, rule, "\"at\":50", "\"at\":40");
    }

    #[test]
    fn a_hold_that_was_never_looked_at_believes_in_nothing() {
        let mut frozen = hold(1, 0, 10, 30, 1);
        frozen.retain(|event| event.op != Op::Check);
        assert_eq!(
            beliefs_fit(&history([frozen, hold(2, 5, 25, 40, 2)])),
            Ok(())
        );
    }

    #[test]
    fn refuses_a_lost_hold_that_comes_back() {
        let signs = [(Op::Lost, Phase::Info), (Op::Check, Phase::Fail)];
        for (op, phase) in signs {
            let with = |at| {
                let mut events = hold(1, 0, 10, 30, 1);
                events.push(Event::new(at, 1, "a", op, phase));
                // That of another hold.
                events.push(Event::new(5, 2, "a", op, phase));
                history([events])
            };
            assert_eq!(check(&with(40)), Ok(()));
            refused(&with(20), "a lost hold came back", "\"at\":20", "\"at\":30");
        }
    }

    #[test]
    fn refuses_a_token_given_twice() {
        let bad = history([hold(1, 0, 10, 20, 7), hold(2, 5, 30, 40, 7)]);
        refused(&bad, "one token twice", "\"at\":10", "\"at\":30");
    }

    #[test]
    fn refuses_tokens_that_shrink() {
        let rule = "a later hold with a smaller token";
        let bad = history([hold(1, 0, 10, 20, 9), hold(2, 25, 30, 40, 8)]);
        refused(&bad, rule, "\"token\":9", "\"token\":8");
        // Both were waiting at the same time; the order of their beliefs decides.
        let bad = history([hold(1, 0, 10, 20, 9), hold(2, 5, 30, 40, 8)]);
        refused(&bad, rule, "\"token\":9", "\"token\":8");
        // Never looked at, so that real time alone decides.
        let mut blind = hold(1, 0, 10, 20, 9);
        blind.retain(|event| event.op != Op::Check);
        refused(
            &history([blind, hold(2, 25, 30, 40, 8)]),
            rule,
            "\"token\":9",
            "\"token\":8",
        );
    }

    #[test]
    fn refuses_reentry_with_another_token() {
        let mut inner = hold(1, 0, 10, 20, 9);
        inner.push(Event::new(15, 1, "a", Op::Reenter, Phase::Ok).with_token(9));
        assert_eq!(check(&history([inner.clone()])), Ok(()));
        inner.push(Event::new(16, 1, "a", Op::Reenter, Phase::Ok).with_token(10));
        refused(
            &history([inner]),
            "reentry with another token",
            "\"token\":9",
            "\"token\":10",
        );
    }
}
