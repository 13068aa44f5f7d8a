//! What the waiters of this process learn from notifications.

use lockkit_core::{ClientId, LockName};

use super::*;

fn ticket(n: u64) -> Ticket {
    let holder = HolderId::new(ClientId::random(), n);
    Ticket::new(LockName::new("a").unwrap(), holder, Duration::from_secs(30))
}

fn desk() -> Arc<Desk> {
    let desk = Arc::new(Desk::new("me".into(), Promises::default()));
    desk.opened(&["me".into()]);
    desk
}

fn held() -> Result<Attempt, BackendError> {
    Ok(Attempt::held())
}

fn grant(ticket: &Ticket, token: u64, beat: u64) -> String {
    format!("{} {token} 900 {beat} a", ticket.holder)
}

async fn next(watch: &mut Box<dyn Watch>) -> Wake {
    tokio::time::timeout(Duration::from_secs(1), watch.changed())
        .await
        .expect("nothing came")
        .unwrap()
}

async fn nothing(watch: &mut Box<dyn Watch>) {
    let wake = tokio::time::timeout(Duration::from_millis(1), watch.changed()).await;
    assert!(wake.is_err(), "{wake:?}");
}

#[tokio::test]
async fn a_grant_that_comes_before_the_watch_is_kept() {
    let (desk, ticket) = (desk(), ticket(1));
    let beat = desk.attempting(ticket.holder);
    desk.message(b"me", grant(&ticket, 7, beat).as_bytes());
    desk.answered(&ticket, beat, &held());
    let mut watch = desk.watch(&ticket, "c".into()).unwrap();
    let expected = Grant::new(FencingToken::new(7).unwrap(), Duration::from_millis(900));
    assert_eq!(next(&mut watch).await, Wake::Granted(expected));
    nothing(&mut watch).await;
}

#[tokio::test]
async fn a_grant_that_is_late_is_a_hint_only() {
    let (desk, ticket) = (desk(), ticket(1));
    let first = desk.attempting(ticket.holder);
    desk.answered(&ticket, first, &held());
    let second = desk.attempting(ticket.holder);
    desk.answered(&ticket, second, &held());
    let mut watch = desk.watch(&ticket, "c".into()).unwrap();
    desk.message(b"me", grant(&ticket, 7, first).as_bytes());
    assert_eq!(next(&mut watch).await, Wake::Retry);

    // It came in time, but nobody looked before the next attempt found the lock held.
    desk.message(b"me", grant(&ticket, 8, second).as_bytes());
    let third = desk.attempting(ticket.holder);
    desk.answered(&ticket, third, &held());
    nothing(&mut watch).await;
}

#[tokio::test]
async fn whoever_waits_looks_again_when_messages_may_have_been_lost() {
    let (desk, ticket) = (desk(), ticket(1));
    let beat = desk.attempting(ticket.holder);
    desk.answered(&ticket, beat, &held());
    let mut watch = desk.watch(&ticket, "c".into()).unwrap();
    nothing(&mut watch).await;
    // The lock's channel is subscribed after the attempt.
    assert_eq!(desk.take_wanted(), ["c"]);
    desk.heard(&["c".into()]);
    assert_eq!(next(&mut watch).await, Wake::Retry);
    desk.message(b"c", b"0");
    desk.message(b"c", b"0");
    assert_eq!(next(&mut watch).await, Wake::Retry);
    nothing(&mut watch).await;

    // Told between the attempt and the watch.
    let late = self::ticket(2);
    let beat = desk.attempting(late.holder);
    desk.message(b"c", b"0");
    desk.answered(&late, beat, &held());
    let mut second = desk.watch(&late, "c".into()).unwrap();
    assert_eq!(next(&mut second).await, Wake::Retry);
    nothing(&mut second).await;
    assert_eq!(next(&mut watch).await, Wake::Retry);
    drop(second);

    desk.closed();
    assert!(desk.watch(&ticket, "c".into()).is_err());
    let (own, locks) = desk.channels();
    assert_eq!(
        (own.as_str(), locks.as_slice()),
        ("me", &["c".to_owned()][..])
    );
    desk.opened(&locks);
    assert_eq!(next(&mut watch).await, Wake::Retry);
    drop(watch);

    // Written while the channel was open: nothing can have been lost.
    let beat = desk.attempting(ticket.holder);
    desk.answered(&ticket, beat, &held());
    let mut watch = desk.watch(&ticket, "c".into()).unwrap();
    desk.next(ticket.holder);
    nothing(&mut watch).await;
}

#[tokio::test(start_paused = true)]
async fn channels_are_heard_for_a_while_after_the_last_waiter() {
    let (desk, ticket) = (desk(), ticket(1));
    let beat = desk.attempting(ticket.holder);
    desk.answered(&ticket, beat, &held());
    let watch = desk.watch(&ticket, "c".into()).unwrap();
    tokio::time::advance(LINGER * 2).await;
    assert!(desk.has_waiters() && desk.take_idle().is_empty());
    drop(watch);
    assert!(!desk.has_waiters() && desk.take_idle().is_empty());
    tokio::time::advance(LINGER).await;
    assert_eq!(desk.take_idle(), ["c"]);
    desk.forget(ticket.holder);
    assert_eq!(desk.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn channels_on_which_others_go_on_are_heard_no_longer() {
    let (desk, ticket) = (desk(), ticket(1));
    let watch = || {
        let beat = desk.attempting(ticket.holder);
        desk.answered(&ticket, beat, &held());
        desk.watch(&ticket, "c".into()).unwrap()
    };
    let first = watch();
    for _ in 0..UNHEEDED {
        desk.message(b"c", b"0");
    }
    drop(first);
    assert!(desk.take_idle().is_empty(), "they were heeded");
    for _ in 1..UNHEEDED {
        desk.message(b"c", b"0");
    }
    drop(watch());
    for _ in 1..UNHEEDED {
        desk.message(b"c", b"0");
    }
    assert!(desk.take_idle().is_empty(), "somebody has waited since");
    desk.message(b"c", b"0");
    desk.unheeded.notified().await;
    assert_eq!(desk.take_idle(), ["c"]);
}

#[test]
fn only_what_may_still_arrive_needs_a_tombstone() {
    let refused = || Err(fault("attempt", Outcome::Unavailable, "no"));
    let lost = || Err(fault("attempt", Outcome::Indeterminate, "?"));
    let desk = desk();

    let answered = ticket(1);
    let beat = desk.attempting(answered.holder);
    desk.answered(&answered, beat, &held());
    assert!(!desk.forget(answered.holder));

    let unanswered = ticket(2);
    desk.attempting(unanswered.holder);
    // The next attempt is answered, which says nothing about the one before it.
    let beat = desk.attempting(unanswered.holder);
    desk.answered(&unanswered, beat, &held());
    assert!(desk.forget(unanswered.holder));
    assert!(desk.forget(unanswered.holder), "a release that is repeated");

    let failed = ticket(3);
    let beat = desk.attempting(failed.holder);
    desk.answered(&failed, beat, &lost());
    assert!(desk.forget(failed.holder));

    // Nobody releases these.
    for (n, enqueue, answer) in [(4, true, refused()), (5, false, held())] {
        let ticket = ticket(n).with_enqueue(enqueue);
        let beat = desk.attempting(ticket.holder);
        desk.answered(&ticket, beat, &answer);
    }
    assert_eq!(desk.counts(), (0, 0));
}

#[test]
fn messages_that_are_none_of_ours_are_ignored() {
    let desk = desk();
    let stranger = ticket(1);
    for payload in [
        "",
        "0",
        "a b c d e",
        &grant(&stranger, 0, 1),
        &grant(&stranger, 1, 1),
    ] {
        desk.message(b"me", payload.as_bytes());
        desk.message(b"other", payload.as_bytes());
    }
    desk.message(&[0xff], &[0xff]);
    assert_eq!(desk.counts(), (0, 0));
}
