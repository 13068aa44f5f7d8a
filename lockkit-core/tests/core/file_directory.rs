//! The directory of the file store: the names of its files, what else may be in it, and who owns them.

#![cfg(unix)]

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::time::Duration;

use crate::scratch::{Scratch, name, ticket};
use lockkit_core::contract::Ticket;
use lockkit_core::file::FileStore;
use lockkit_core::{DistributedLock as _, Outcome};

/// A user who is not the one that runs the tests.
const NOBODY: u32 = 65_534;

async fn hold(store: &FileStore, text: &str) -> Ticket {
    let ticket = ticket(text);
    store.attempt(&ticket).await.unwrap();
    assert!(store.renew(std::slice::from_ref(&ticket)).await[0].is_ok());
    ticket
}

fn file_name(store: &FileStore, text: &str) -> String {
    let path = store.path(&name(text));
    assert_eq!(path.parent(), Some(store.dir()));
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Frozen: a change here makes old and new processes lock different files.
#[test]
fn golden_vectors() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let long = "x".repeat(512);
    let emoji = "\u{1F512}".repeat(128);
    let heads: [(&str, String); 16] = [
        ("orders/42", "orders%2f42.lock".into()),
        ("nightly", "nightly.lock".into()),
        ("a.b-c_d.lock", "a.b-c_d.lock.lock".into()),
        ("Orders", "%4frders.lock".into()),
        (".", "%2e.lock".into()),
        ("..", "%2e..lock".into()),
        ("../a", "%2e.%2fa.lock".into()),
        (".hidden", "%2ehidden.lock".into()),
        ("%2f", "%252f.lock".into()),
        ("{a}:b c", "%7ba%7d%3ab%20c.lock".into()),
        ("a\nb\\c", "a%0ab%5cc.lock".into()),
        ("~", "%7e.lock".into()),
        ("\u{e9}", "%c3%a9.lock".into()),
        ("\u{1F512}", "%f0%9f%94%92.lock".into()),
        (
            &long,
            format!(
                "{}~{}.lock",
                "x".repeat(185),
                "64164443bb63e338ef1cfdb12a57117cd1212270cc935a798f6e8a665cdf4659"
            ),
        ),
        (
            &emoji,
            format!(
                "{}%f0~{}.lock",
                "%f0%9f%94%92".repeat(15),
                "54551fbc076431f296d27a77a672267ce4a3dc034355820f5d5021ab56cc5a9f"
            ),
        ),
    ];
    for (text, expected) in heads {
        assert_eq!(file_name(&store, text), expected, "{text:?}");
    }
}

#[tokio::test]
async fn names_stay_apart_and_inside_the_directory() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let pieces = [
        "a", "A", ".", "/", "%", "~", "\n", "\u{e9}", "e\u{301}", "2e",
    ];
    let mut names = HashSet::new();
    for first in pieces {
        for second in pieces {
            for third in pieces {
                names.insert(format!("{first}{second}{third}"));
            }
            names.insert(format!("{first}{second}{}", "long".repeat(100)));
            names.insert(format!("{}{first}{second}", "long".repeat(100)));
        }
    }
    let mut folded = HashSet::new();
    for text in &names {
        let file_name = file_name(&store, text);
        assert!(file_name.len() <= 255, "{file_name}");
        assert!(file_name.is_ascii());
        assert!(!file_name.starts_with('.'), "{file_name}");
        assert_eq!(file_name, file_name.to_ascii_lowercase());
        assert!(folded.insert(file_name), "{text:?}");
        // The name is found again in the directory.
        let ticket = hold(&store, text).await;
        let listed = store.list("").await.unwrap();
        assert_eq!(listed.len(), 1, "{text:?}");
        assert_eq!(listed[0].name.as_str(), text);
        store.release(&ticket).await.unwrap();
        fs::remove_file(store.path(&ticket.name)).unwrap();
    }
}

#[tokio::test]
async fn foreign_file_names_are_no_locks() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let held = hold(&store, "a").await;
    let record = fs::read(store.path(&held.name)).unwrap();
    store.release(&held).await.unwrap();
    assert_eq!(store.purge(Duration::ZERO).await.unwrap(), 1);
    let foreign = [
        ".lock.tmp",
        ".lock",
        "readme",
        "A.lock",
        "%2F.lock",
        "%2.lock",
        "%61.lock",
        "%ff.lock",
        "a~b.lock",
    ];
    let mut locked = Vec::new();
    for file_name in foreign {
        let path = scratch.0.join(file_name);
        fs::write(&path, &record).unwrap();
        locked.push(fs::File::open(path).unwrap());
    }
    assert_eq!(store.purge(Duration::ZERO).await.unwrap(), 0);
    for file in &locked {
        file.lock().unwrap();
    }
    assert_eq!(store.list("").await.unwrap(), []);
    assert!(store.unreadable().await.unwrap().is_empty());
}

#[tokio::test]
async fn links_pipes_and_directories_are_refused() {
    let scratch = Scratch::new();
    let store = scratch.store();
    symlink("elsewhere", store.path(&name("link"))).unwrap();
    fs::create_dir(store.path(&name("directory"))).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        store.path(&name("pipe")),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    for text in ["link", "directory", "pipe"] {
        let error = store.attempt(&ticket(text)).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected, "{text}");
    }
    assert!(!scratch.0.join("elsewhere").exists());
}

#[tokio::test]
async fn odd_entries_hide_no_lock() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let (kept, gone) = (hold(&store, "kept").await, hold(&store, "gone").await);
    store.release(&gone).await.unwrap();
    let odd = ["directory.lock", "link.lock"].map(|name| scratch.0.join(name));
    fs::create_dir(&odd[0]).unwrap();
    symlink("elsewhere", &odd[1]).unwrap();
    let listed = store.list("").await.unwrap();
    let names: Vec<_> = listed.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["kept"]);
    assert_eq!(store.unreadable().await.unwrap(), odd);
    assert_eq!(store.purge(Duration::ZERO).await.unwrap(), 1);
    store.release(&kept).await.unwrap();
}

/// Tests nothing where the tests do not run as root: no other user can give a file away.
#[tokio::test]
async fn a_broken_lock_keeps_its_owner_group_and_mode() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let path = store.path(&name("nightly"));
    hold(&store, "nightly").await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    if chown(&path, Some(NOBODY), Some(NOBODY)).is_err() {
        return;
    }
    assert!(store.break_lock(&name("nightly")).await.unwrap().is_some());
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (NOBODY, NOBODY));
    assert_eq!(metadata.mode() & 0o777, 0o640);
}

/// As above; the thread that breaks is not root any more.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_break_that_would_change_the_owner_is_refused() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let path = store.path(&name("nightly"));
    let ticket = hold(&store, "nightly").await;
    for path in [store.dir(), &*path] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let broken = std::thread::scope(|scope| {
        let breaker = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok()?;
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            Some(runtime.block_on(store.break_lock(&name("nightly"))))
        });
        breaker.join().unwrap()
    });
    let Some(broken) = broken else { return };
    let error = broken.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected);
    let said = lockkit_core::Error::from(error).to_string();
    assert!(said.contains("user 0"), "{said}");
    let renewed = store.renew(std::slice::from_ref(&ticket)).await;
    assert!(matches!(
        renewed[0],
        Ok(lockkit_core::contract::Renewal::Renewed { .. })
    ));
    assert_eq!(fs::read_dir(store.dir()).unwrap().count(), 1);
}
