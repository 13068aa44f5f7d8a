//! A prefix before every name of a store.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::{Attempt, DistributedLock, Release, Renewal, Ticket};
use lockkit_core::layers::Prefixed;
use lockkit_core::memory::MemoryStore;
use lockkit_core::{ClientId, HolderId, InvalidName, LockName, Outcome};

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn ticket(text: &str) -> Ticket {
    let holder = HolderId::new(ClientId::random(), 1);
    Ticket::new(name(text), holder, Duration::from_secs(30))
}

fn stores() -> (MemoryStore, Prefixed) {
    let memory = MemoryStore::new();
    let store = Prefixed::new(Arc::new(memory.clone()), "shop:").unwrap();
    (memory, store)
}

#[tokio::test]
async fn names_have_the_prefix_inside_and_not_outside() {
    let (memory, store) = stores();
    let ticket = ticket("a");
    memory.attempt(&ticket).await.unwrap();
    let mine = self::ticket("a");
    assert!(matches!(
        store.attempt(&mine).await,
        Ok(Attempt::Granted(_))
    ));
    assert_eq!(store.resolve(&mine).name, name("shop:a"));
    let inside = memory.inspect(&name("shop:a")).await.unwrap().unwrap();
    assert!(
        inside.holder_ids().eq([mine.holder.to_string()]),
        "{inside:?}"
    );
    assert_eq!(store.list("b").await.unwrap(), []);
    let listed = store.list("a").await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, name("a"));
    let seen = store.inspect(&name("a")).await.unwrap().unwrap();
    assert_eq!(seen.name, name("a"));
    let broken = store.break_lock(&name("a")).await.unwrap().unwrap();
    assert!(
        broken.holder_ids().eq([mine.holder.to_string()]),
        "{broken:?}"
    );
    assert!(matches!(store.release(&mine).await, Ok(Release::NotHeld)));
    assert_eq!(memory.counts().holds, 1);
}

#[tokio::test]
async fn a_name_that_grows_too_long_is_rejected_alone() {
    let (_, store) = stores();
    let long = ticket(&"x".repeat(508));
    let error = store.attempt(&long).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected);
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("513 bytes") && why.contains("shop:"), "{why}");
    let short = ticket("a");
    store.attempt(&short).await.unwrap();
    let answers = store.renew(&[long.clone(), short, long.clone()]).await;
    assert!(answers[0].is_err() && answers[2].is_err());
    assert!(matches!(answers[1], Ok(Renewal::Renewed { .. })));
    assert_eq!(store.resolve(&long), long);
}

#[test]
fn a_prefix_that_no_name_fits_behind_is_refused() {
    let inner: Arc<dyn DistributedLock> = Arc::new(MemoryStore::new());
    let prefixed = |prefix: String| Prefixed::new(Arc::clone(&inner), prefix).map(|_| ());
    assert_eq!(prefixed(String::new()), Ok(()));
    assert_eq!(prefixed("x".repeat(511)), Ok(()));
    assert_eq!(
        prefixed("x".repeat(512)),
        Err(InvalidName::TooLong { len: 512 })
    );
    assert_eq!(prefixed("\0".to_owned()), Err(InvalidName::Nul));
    let store = Prefixed::new(inner, "a").unwrap();
    assert!(store.as_any().is::<MemoryStore>());
}
