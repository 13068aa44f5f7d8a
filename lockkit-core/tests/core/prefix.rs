//! A prefix before every name of a client.

use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, InvalidName, LockClient};

fn client(store: &MemoryStore, prefix: &str) -> LockClient {
    let builder = LockClient::builder(store.clone());
    builder.prefix(prefix).build().unwrap()
}

#[tokio::test]
async fn names_have_the_prefix_inside_and_not_outside() {
    let store = MemoryStore::new();
    let (shop, all) = (client(&store, "shop:"), client(&store, ""));
    // Of another application, and one that has only the prefix.
    for name in ["a", "shop:"] {
        all.lock(name).unwrap().acquire().await.unwrap().leak();
    }
    let lock = shop.lock("a").unwrap();
    let guard = lock.try_acquire().await.unwrap().unwrap();
    assert_eq!(guard.name().as_str(), "a");
    assert_eq!(guard.ticket().name.as_str(), "shop:a");
    let inside = all
        .lock("shop:a")
        .unwrap()
        .inspect()
        .await
        .unwrap()
        .unwrap();
    assert!(inside.holder_ids().eq([guard.holder().to_string()]));

    assert_eq!(lock.inspect().await.unwrap().unwrap().name, *lock.name());
    assert_eq!(shop.list("b").await.unwrap(), []);
    for prefix in ["", "a"] {
        let listed = shop.list(prefix).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].name, *lock.name());
    }
    let late = lock.acquire_timeout(std::time::Duration::ZERO).await;
    assert!(
        late.unwrap_err()
            .to_string()
            .starts_with("lock `a` was still held")
    );
    let broken = lock.break_lock().await.unwrap().unwrap();
    assert_eq!(broken.name, *lock.name());
    let lost = guard.release().await.unwrap_err();
    assert!(lost.to_string().starts_with("lock `a` ("), "{lost}");
    // The late one leaves the queue in the background.
    shop.drain().await;
    assert_eq!(all.list("").await.unwrap().len(), 2);
}

#[tokio::test]
async fn hold_passes_to_clients_of_the_same_prefix() {
    let store = MemoryStore::new();
    let guard = client(&store, "shop:").rw_lock("a").unwrap();
    let guard = guard.write().acquire().await.unwrap();
    let guard = guard.downgrade().await.unwrap();
    assert_eq!(guard.name().as_str(), "a");
    let text = guard.detach().await.unwrap();
    let guard = client(&store, "shop:").adopt(&text).await.unwrap();
    assert_eq!(guard.name().as_str(), "a");
    guard.release().await.unwrap();
    assert_eq!(store.counts().holds, 0);
}

#[tokio::test]
async fn a_name_that_is_too_long_with_the_prefix_is_refused() {
    let shop = client(&MemoryStore::new(), "shop:");
    shop.lock("x".repeat(507)).unwrap();
    let error = shop.lock("x".repeat(508)).unwrap_err().to_string();
    assert!(
        error.contains("513 bytes") && error.contains("shop:"),
        "{error}"
    );
}

#[tokio::test]
async fn a_prefix_that_no_name_fits_behind_is_refused() {
    let refused = |prefix: &str| {
        let builder = LockClient::builder(MemoryStore::new());
        match builder.prefix(prefix).build() {
            Err(Error::InvalidName(why)) => Some(why),
            result => result.map(|_| None).unwrap(),
        }
    };
    assert_eq!(refused(&"x".repeat(511)), None);
    let too_long = InvalidName::TooLong { len: 513 };
    assert_eq!(refused(&"x".repeat(512)), Some(too_long));
    assert_eq!(refused("\0"), Some(InvalidName::Nul));
}
