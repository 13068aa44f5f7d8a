//! The kit for stores: wake-ups of tickets, predecessors in a queue, pauses between attempts to connect.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockkit_core::contract::{Attempt, Grant, Mode, Ticket, Wake, Watch as _};
use lockkit_core::store::Backoff;
use lockkit_core::store::predecessors::{Next, Predecessors, holding};
use lockkit_core::store::waiters::{TicketWatch, Waiters};
use lockkit_core::{BackendError, ClientId, FencingToken, HolderId, LockName, LossReason, Outcome};

fn ticket(name: &str) -> Ticket {
    let holder = HolderId::new(ClientId::random(), 1);
    Ticket::new(
        LockName::new(name).unwrap(),
        holder,
        Duration::from_secs(30),
    )
}

fn grant(token: u64) -> Grant {
    Grant::new(FencingToken::new(token).unwrap(), Duration::from_secs(1))
}

/// One attempt that finds the lock held; returns its number.
fn wait(waiters: &Waiters, ticket: &Ticket) -> u64 {
    let number = waiters.attempted(ticket);
    waiters.answered(ticket, number, &Ok(Attempt::held()));
    number
}

fn fail(waiters: &Waiters, ticket: &Ticket, outcome: Outcome) {
    let number = waiters.attempted(ticket);
    let error = BackendError::new("test", "attempt", outcome, "no");
    waiters.answered(ticket, number, &Err(error));
}

fn next(watch: &mut TicketWatch) -> Option<Wake> {
    let mut context = Context::from_waker(Waker::noop());
    match watch.changed().as_mut().poll(&mut context) {
        Poll::Ready(wake) => Some(wake.unwrap()),
        Poll::Pending => None,
    }
}

#[test]
fn keeps_wake_ups_from_attempt_until_watch() {
    let (waiters, a) = (Arc::new(Waiters::default()), ticket("a"));
    waiters.wake(&a.name);
    let number = waiters.attempted(&a);
    waiters.wake(&a.name);
    waiters.answered(&a, number, &Ok(Attempt::held()));
    let mut watch = waiters.watch(&a);
    assert_eq!(next(&mut watch), Some(Wake::Retry));
    assert_eq!(next(&mut watch), None);

    // The next attempt finds out by itself.
    waiters.wake_all();
    wait(&waiters, &a);
    assert_eq!(next(&mut watch), None);
    waiters.wake(&ticket("b").name);
    assert_eq!(next(&mut watch), None);
    waiters.wake_all();
    assert_eq!(next(&mut watch), Some(Wake::Retry));
}

#[test]
fn keeps_grant_that_comes_before_answer() {
    let (waiters, a) = (Arc::new(Waiters::default()), ticket("a"));
    let number = waiters.attempted(&a);
    waiters.with(a.holder, |entry| entry.granted(Some(number), grant(7)));
    waiters.answered(&a, number, &Ok(Attempt::held()));
    let mut watch = waiters.watch(&a);
    waiters.wake(&a.name);
    assert_eq!(next(&mut watch), Some(Wake::Granted(grant(7))));
    assert_eq!(next(&mut watch), None, "the grant includes the wake-up");
}

#[test]
fn grant_of_earlier_attempt_is_only_a_wake_up() {
    let (waiters, a) = (Arc::new(Waiters::default()), ticket("a"));
    let first = wait(&waiters, &a);
    let second = wait(&waiters, &a);
    let mut watch = waiters.watch(&a);
    waiters.with(a.holder, |entry| entry.granted(Some(first), grant(7)));
    assert_eq!(next(&mut watch), Some(Wake::Retry));

    // In time, but not read before the next attempt found the lock held.
    waiters.with(a.holder, |entry| entry.granted(Some(second), grant(8)));
    wait(&waiters, &a);
    assert_eq!(next(&mut watch), None);
    waiters.with(a.holder, |entry| entry.granted(None, grant(9)));
    assert_eq!(next(&mut watch), Some(Wake::Granted(grant(9))));
}

#[test]
fn loss_ends_what_came_before_it() {
    let (waiters, a) = (Arc::new(Waiters::default()), ticket("a"));
    wait(&waiters, &a);
    let mut watch = waiters.watch(&a);
    waiters.with(a.holder, |entry| {
        entry.granted(None, grant(1));
        entry.lost(LossReason::SessionEnded);
        entry.granted(None, grant(2));
    });
    let lost = Wake::Lost(LossReason::SessionEnded);
    assert_eq!(next(&mut watch), Some(lost));
    assert_eq!(next(&mut watch), Some(Wake::Granted(grant(2))));
    assert_eq!(next(&mut watch), None);

    waiters.with(a.holder, |entry| entry.lost(LossReason::Superseded));
    waiters.retire(a.holder);
    let lost = Wake::Lost(LossReason::Superseded);
    assert_eq!(next(&mut watch), Some(lost));
    drop(watch);
    assert!(waiters.is_empty());
}

#[tokio::test]
async fn wakes_a_watch_that_waits() {
    let (waiters, a) = (Arc::new(Waiters::default()), ticket("a"));
    let first = waiters.watch(&a);
    let mut second = waiters.watch(&a);
    assert_eq!(next(&mut second), Some(Wake::Retry), "no attempt was made");
    drop(first);
    assert!(waiters.is_watched(&a.name) && waiters.has_watches());
    let (wake, ()) = tokio::join!(second.changed(), async { waiters.wake(&a.name) });
    assert_eq!(wake.unwrap(), Wake::Retry);
    drop(second);
    assert!(!waiters.is_watched(&a.name) && waiters.is_empty());
}

#[test]
fn tells_whether_attempt_may_still_arrive() {
    let waiters = Waiters::default();
    let forget = |ticket: &Ticket| waiters.forget(ticket.holder).map(|it| it.unanswered);
    let answered = ticket("a");
    wait(&waiters, &answered);
    assert_eq!(forget(&answered), Some(false));
    assert_eq!(forget(&answered), None);

    // The answer to the next attempt says nothing about the one before it.
    let dropped = ticket("a");
    waiters.attempted(&dropped);
    wait(&waiters, &dropped);
    assert_eq!(forget(&dropped), Some(true));

    let failed = ticket("a");
    fail(&waiters, &failed, Outcome::Indeterminate);
    assert_eq!(forget(&failed), Some(true));
}

#[test]
fn forgets_tickets_that_left_nothing_behind() {
    let waiters = Waiters::default();
    fail(&waiters, &ticket("a"), Outcome::Unavailable);
    fail(&waiters, &ticket("a"), Outcome::Rejected);
    wait(&waiters, &ticket("a").with_enqueue(false));
    assert!(waiters.is_empty());
    // Nor does it keep their names.
    assert!(format!("{waiters:?}").contains("names: {}"));
}

#[test]
fn doubles_up_to_the_longest_until_reset() {
    let ms = Duration::from_millis;
    let mut backoff = Backoff::new(ms(50), ms(150));
    for expected in [50, 100, 150, 150] {
        let pause = backoff.pause();
        assert!(ms(expected / 2) <= pause && pause <= ms(expected));
    }
    backoff.reset();
    assert!(backoff.pause() <= ms(50));
}

#[test]
fn pauses_are_spread_over_their_upper_half() {
    let second = Duration::from_secs(1);
    let pauses: Vec<_> = (0..64)
        .map(|_| Backoff::new(second, second).pause())
        .collect();
    let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
    assert!((second / 2..second * 7 / 10).contains(least));
    assert!((second * 8 / 10..=second).contains(most));
}

/// Keys below a hundred are exclusive, those below two hundred read, the others are one of two permits.
fn mode(key: &u32) -> Mode {
    match key / 100 {
        0 => Mode::Exclusive,
        1 => Mode::Read,
        _ => Mode::Permit {
            of: NonZeroU32::new(2).unwrap(),
        },
    }
}

fn listed(own: u32, queue: &[u32]) -> Predecessors<u32> {
    let mut waiter = Predecessors::new(own, mode);
    assert_eq!(waiter.next(), Next::List);
    waiter.listed(queue.iter().copied(), false);
    waiter
}

#[test]
fn first_in_queue_has_its_turn() {
    assert_eq!(listed(3, &[3, 4]).next(), Next::Turn);
}

#[test]
fn watches_nearest_two() {
    assert_eq!(listed(9, &[1, 3, 5, 9, 11]).next(), Next::Watch(&[5, 3]));
    assert_eq!(listed(3, &[1, 3]).next(), Next::Watch(&[1]));
}

#[test]
fn last_deletion_is_the_turn_in_any_order() {
    for order in [[3, 5], [5, 3]] {
        let mut waiter = listed(9, &[3, 5, 9]);
        waiter.deleted(&order[0]);
        assert_eq!(waiter.next(), Next::Watch(&[order[1]]));
        waiter.deleted(&order[1]);
        assert_eq!(waiter.next(), Next::Turn);
    }
}

#[test]
fn lists_again_while_others_are_farther_away() {
    for gone in [3, 5] {
        let mut waiter = listed(9, &[1, 3, 5, 9]);
        waiter.deleted(&gone);
        assert_eq!(waiter.next(), Next::List);
        waiter.listed([8 - gone, 9], false);
        assert_eq!(waiter.next(), Next::Watch(&[8 - gone]));
    }
}

#[test]
fn truncated_listing_is_no_turn() {
    let mut waiter = Predecessors::new(9, mode);
    waiter.listed([5, 9], true);
    waiter.deleted(&5);
    assert_eq!(waiter.next(), Next::List);
    waiter.listed([9], true);
    assert_eq!(waiter.next(), Next::List);
}

#[test]
fn missed_events_are_no_turn() {
    let mut waiter = listed(9, &[5, 9]);
    waiter.invalidate();
    waiter.deleted(&5);
    assert_eq!(waiter.next(), Next::List);
    waiter.listed([9], false);
    assert_eq!(waiter.next(), Next::Turn);
}

#[test]
fn lost_own_key_stays_lost() {
    let mut absent = listed(9, &[5, 11]);
    let mut deleted = listed(9, &[5, 9]);
    deleted.deleted(&9);
    for waiter in [&mut absent, &mut deleted] {
        assert_eq!(waiter.next(), Next::Gone);
        waiter.deleted(&5);
        waiter.invalidate();
        waiter.listed([9], false);
        assert_eq!(waiter.next(), Next::Gone);
    }
}

#[test]
fn reader_waits_only_for_writers() {
    let mut reader = listed(109, &[201, 2, 103, 4, 105, 109, 10]);
    assert_eq!(reader.next(), Next::Watch(&[4, 2]));
    assert_eq!(reader.blocker(), Some(&4));
    reader.deleted(&103);
    reader.deleted(&4);
    assert_eq!(reader.next(), Next::Watch(&[2]));
    reader.deleted(&2);
    assert_eq!(reader.next(), Next::Turn);
}

#[test]
fn permit_waits_until_few_enough_are_before_it() {
    let mut permit = listed(209, &[200, 201, 202, 103, 204, 209]);
    assert_eq!(permit.next(), Next::Watch(&[204, 103, 202, 201]));
    assert_eq!(permit.blocker(), None);
    permit.deleted(&103);
    assert_eq!(permit.next(), Next::List);
    permit.listed([201, 202, 204, 209], false);
    permit.deleted(&204);
    assert_eq!(permit.next(), Next::Watch(&[202, 201]));
    permit.deleted(&201);
    assert_eq!(permit.next(), Next::Turn);
}

#[test]
fn writer_watches_all_readers_of_a_small_crowd() {
    let readers: Vec<u32> = (101..=116).collect();
    let mut writer = listed(9, &[&readers[..], &[9]].concat());
    for gone in &readers[..15] {
        writer.deleted(gone);
        assert!(matches!(writer.next(), Next::Watch(_)), "{gone}");
    }
    writer.deleted(&116);
    assert_eq!(writer.next(), Next::Turn);
    // Behind another writer it waits for that one first.
    assert_eq!(listed(9, &[101, 102, 3, 9]).next(), Next::Watch(&[3, 102]));
}

#[test]
fn permit_with_room_waits_for_exclusive_keys_alone() {
    let mut permit = listed(209, &[201, 2, 209]);
    assert_eq!(permit.next(), Next::Watch(&[2, 201]));
    assert_eq!(permit.blocker(), Some(&2));
    permit.deleted(&201);
    assert_eq!(permit.next(), Next::Watch(&[2]));
    permit.deleted(&2);
    assert_eq!(permit.next(), Next::Turn);
    assert_eq!(listed(209, &[3, 209]).next(), Next::Watch(&[3]));
    assert_eq!(listed(209, &[103, 209]).next(), Next::Turn);
}

#[test]
fn those_that_hold_are_the_first_that_fit() {
    for (queue, expected) in [
        (&[101, 102, 3, 104][..], &[101, 102][..]),
        (&[1, 102, 3], &[1]),
        (&[201, 202, 203, 104], &[201, 202, 104]),
        (&[], &[]),
    ] {
        let holding: Vec<u32> = holding(queue, mode).copied().collect();
        assert_eq!(holding, expected);
    }
}

/// A small generator chooses the order in which keys leave a queue of twelve. Each waiter gets the
/// deletions that it watches, and lists when it has to.
#[test]
fn each_waiter_has_its_turn_exactly_when_it_fits() {
    let mut random: u32 = 1;
    for round in 0..300 {
        let kinds: &[u32] = match round % 3 {
            0 => &[0],
            1 => &[100, 200],
            _ => &[0, 100, 100, 200, 200],
        };
        let kind = |n: usize| kinds[(n * 7 + n / 3) % kinds.len()];
        let mut queue: Vec<u32> = (0..12).map(|n: u32| kind(n as usize) + n).collect();
        let mut waiters: Vec<_> = queue.iter().map(|own| listed(*own, &queue)).collect();
        while !queue.is_empty() {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let gone = queue.remove((random >> 16) as usize % queue.len());
            for waiter in &mut waiters {
                waiter.deleted(&gone);
                if waiter.next() == Next::List {
                    waiter.listed(queue.iter().copied(), false);
                }
                let there = queue.contains(waiter.own());
                let fits = holding(&queue, mode).any(|key| key == waiter.own());
                assert_eq!(waiter.next() == Next::Turn, fits);
                assert_eq!(waiter.next() == Next::Gone, !there);
            }
        }
    }
}
