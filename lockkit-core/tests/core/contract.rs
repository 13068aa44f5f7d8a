//! What the types of the contract read, write and say.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::{Holder, LockState, Mode};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{
    BackendError, ClientId, Error, FencingToken, HolderId, InvalidName, LockClient, LockName,
    LossReason, MultiLock, Outcome,
};

#[test]
fn name_is_any_text_of_512_bytes() {
    for name in [
        "a",
        "a/b",
        "../..",
        "%2F",
        "{x}",
        "line\nbreak",
        "\u{1F512}",
        &"x".repeat(512),
    ] {
        assert_eq!(LockName::new(name).unwrap().as_str(), name);
    }
    assert_eq!(LockName::new(""), Err(InvalidName::Empty));
    assert_eq!(
        LockName::new("x".repeat(513)),
        Err(InvalidName::TooLong { len: 513 })
    );
    assert_eq!(LockName::new("a\0b"), Err(InvalidName::Nul));
}

#[test]
fn id_of_a_holder_reads_what_it_writes() {
    let id = HolderId::new(ClientId::random(), 7);
    assert_eq!(id.to_string().parse(), Ok(id));
    for text in [
        "",
        ":",
        "x:1",
        "6fa3:1",
        &format!("{}:+1", id.client()),
        &format!("{}:", id.client()),
    ] {
        assert!(text.parse::<HolderId>().is_err(), "{text}");
    }
}

#[test]
fn token_goes_through_a_signed_column_and_through_text() {
    for number in [1, 42, i64::MAX] {
        let token = FencingToken::try_from(number).unwrap();
        assert_eq!(token.to_i64(), number);
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_eq!(u64::from(token), number.cast_unsigned());
    }
    for number in [0, -1, i64::MIN] {
        assert!(FencingToken::try_from(number).is_err(), "{number}");
    }
    for text in ["", "0", "-1", "x", "18446744073709551616"] {
        assert!(text.parse::<FencingToken>().is_err(), "{text}");
    }
    assert_eq!(FencingToken::new(u64::MAX).unwrap().to_i64(), i64::MAX);
    let of_revision = |base| FencingToken::of_revision(5, base).to_i64();
    let largest = i64::MAX.cast_unsigned();
    assert_eq!(of_revision(2), 7);
    assert_eq!(of_revision(largest - 5), i64::MAX);
    for base in [largest - 4, largest, largest + 1, u64::MAX] {
        assert_eq!(of_revision(base), i64::MAX, "above {base}");
    }
    let (base, last) = (FencingToken::LARGEST_BASE, 1 << 62);
    let [before, last] = [last - 1, last].map(|it| FencingToken::of_revision(it, base));
    assert!(before < last && last.to_i64() == i64::MAX);
}

/// A request that only reads had no effect, answered or not.
#[test]
fn failed_read_is_never_indeterminate() {
    let lost = |operation| BackendError::new("x", operation, Outcome::Indeterminate, "lost");
    for operation in ["connect", "inspect", "list", "read", "watch"] {
        assert_eq!(
            lost(operation).outcome(),
            Outcome::Unavailable,
            "{operation}"
        );
        let late = BackendError::timeout("x", operation, Duration::from_secs(1), None);
        assert_eq!(late.outcome(), Outcome::Unavailable, "{operation}");
        let rejected = late.with_outcome(Outcome::Rejected);
        assert_eq!(rejected.outcome(), Outcome::Rejected, "{operation}");
        let again = rejected.with_outcome(Outcome::Indeterminate);
        assert_eq!(again.outcome(), Outcome::Unavailable, "{operation}");
    }
    for operation in ["attempt", "renew", "release", "break", "note", "commit"] {
        assert_eq!(
            lost(operation).outcome(),
            Outcome::Indeterminate,
            "{operation}"
        );
    }
    assert_eq!(
        lost("attempt").without_effect().outcome(),
        Outcome::Unavailable
    );
}

#[test]
#[cfg(feature = "serde")]
fn serialised_token_is_a_number_and_name_a_text() {
    let mut state = LockState::new(LockName::new("a/b").unwrap()).with_holder("me");
    state.token = FencingToken::new(42);
    let text = serde_json::to_string(&state).unwrap();
    assert!(
        text.starts_with(r#"{"name":"a/b","holders":[{"id":"me","label":null,"mode":null,"token":null,"held_for":null,"remaining":null,"note":null}],"token":42,"#),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<LockState>(&text).unwrap(), state);
    assert!(serde_json::from_str::<LockName>(r#""""#).is_err());
    assert!(serde_json::from_str::<FencingToken>("0").is_err());
    let reason = serde_json::to_string(&LossReason::SessionEnded).unwrap();
    assert_eq!(reason, r#""session_ended""#);
}

#[test]
fn lock_in_words_names_three_holders() {
    let name = LockName::new("a").unwrap();
    let waited_for = |waiters| LockState {
        waiters: Some(waiters),
        ..LockState::new(name.clone())
    };
    assert_eq!(waited_for(0).to_string(), "free");
    let reader = Holder {
        id: "c:1".to_owned(),
        label: Some("web-1:4711 nightly.sh".to_owned()),
        mode: Some(Mode::Read),
        token: FencingToken::new(7),
        held_for: Some(Duration::from_millis(3_723_900)),
        remaining: Some(Duration::from_millis(1_470)),
        note: Some("line\nbreak".to_owned()),
    };
    let writer = Holder {
        mode: Some(Mode::Exclusive),
        ..Holder::new("c:2")
    };
    let state = waited_for(4)
        .with_holder(reader)
        .with_holder(writer)
        .with_holder("c:3")
        .with_holder("c:4")
        .with_holder("c:5");
    let text = "held by web-1:4711 nightly.sh (read) for 1h 2m 3s, note \"line\\u{a}break\"; c:2; c:3; 2 more, \
                token 7, 1.5s left, 4 waiting";
    assert_eq!(state.to_string(), text);
}

#[derive(Debug, thiserror::Error)]
#[error("connection refused (127.0.0.1:6379)")]
struct Refused(#[source] std::io::Error);

#[test]
fn a_name_of_several_lines_is_shown_on_one() {
    let name = LockName::new("a\nERROR \u{1b}[31mb").unwrap();
    let lost = Error::Lost {
        name,
        token: FencingToken::new(7).unwrap(),
        reason: LossReason::Superseded,
        source: None,
    };
    let text = lost.to_string();
    assert!(
        text.starts_with("lock `a\\u{a}ERROR \\u{1b}[31mb` (token 7)"),
        "{text}"
    );
}

#[test]
fn a_failed_request_names_its_cause_in_one_line_and_once() {
    let cause = Refused(std::io::Error::other("os error 111"));
    let failed = BackendError::new("redis", "attempt", Outcome::Unavailable, cause);
    assert!(failed.source().unwrap().is::<Refused>());
    let error = Error::from(failed);
    assert_eq!(
        error.to_string(),
        "attempt of the redis store failed: connection refused (127.0.0.1:6379): os error 111"
    );
    assert!(error.source().unwrap().is::<BackendError>());

    let two = Duration::from_secs(2);
    for (address, expected) in [
        (None, "renew of the etcd store failed: no answer within 2s"),
        (
            Some("10.0.0.1:2379"),
            "renew of the etcd store failed: no answer within 2s (10.0.0.1:2379)",
        ),
    ] {
        let timeout = BackendError::timeout("etcd", "renew", two, address);
        assert_eq!(Error::from(timeout).to_string(), expected);
    }
}

#[test]
fn a_timeout_is_told_in_round_figures() {
    let name = LockName::new("a").unwrap();
    let waited = Duration::from_micros(3_000_752);
    let holder = Holder {
        held_for: Some(Duration::from_secs(190)),
        ..Holder::new("c:1")
    };
    let state = LockState::new(name.clone()).with_holder(holder);
    let message = |state| {
        let name = name.clone();
        Error::Timeout {
            name,
            waited,
            state,
        }
        .to_string()
    };
    assert_eq!(
        message(None),
        "lock `a` was still held by others after 3.0s"
    );
    assert_eq!(
        message(Some(Arc::new(state))),
        "lock `a` was still held by c:1 for 3m 10s, after 3.0s"
    );
}

/// Also a server's words, and what the client says of a name.
#[tokio::test]
async fn message_is_one_line_whatever_the_name_is() {
    let name = "a\nb\u{1b}[2J";
    let client = LockClient::new(MemoryStore::new()).unwrap();
    let owner = client.owner();
    let [read, write] = [
        client.rw_lock(name).unwrap().read(),
        client.rw_lock(name).unwrap().write(),
    ];
    let [read, write] = [read, write].map(|lock| lock.with_owner(&owner).unwrap());
    let guard = read.acquire().await.unwrap();
    let again = guard.reenter().unwrap();
    let prefixed = LockClient::builder(MemoryStore::new()).prefix(name);
    let long = prefixed.build().unwrap().lock("x".repeat(512));
    let lock = || client.lock(name).unwrap();
    let words = format!("WRONG {name}");
    let refused = BackendError::new("redis", "attempt", Outcome::Rejected, words);
    for error in [
        write.acquire().await.unwrap_err(),
        guard.detach().await.unwrap_err(),
        again.downgrade().await.unwrap_err(),
        MultiLock::new([lock(), lock()]).unwrap_err(),
        long.unwrap_err(),
        refused.into(),
    ] {
        let text = error.to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}
