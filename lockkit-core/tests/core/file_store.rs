//! The file store against its contract, against other processes and against `flock(1)`.

#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "a test may fail by a panic, and spawns on its own runtime"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::scratch::{Scratch, name, ticket};
use lockkit_core::contract::{Attempt, Release, Renewal, Ticket};
use lockkit_core::file::FileStore;
use lockkit_core::{
    BackendError, DistributedLock, EndsBy, FencingToken, LockName, Outcome, PollRange, Waiting,
};

/// Names the directory for the second process.
const DIR: &str = "LOCKKIT_TEST_FILE_DIR";

async fn token(store: &FileStore, ticket: &Ticket) -> Option<FencingToken> {
    match store.attempt(ticket).await.unwrap() {
        Attempt::Granted(grant) => {
            assert_eq!((grant.since, grant.ttl), (None, ticket.ttl));
            Some(grant.token)
        }
        _ => None,
    }
}

async fn renewed(store: &FileStore, ticket: &Ticket) -> bool {
    let answers = store.renew(std::slice::from_ref(ticket)).await;
    assert_eq!(answers.len(), 1);
    matches!(answers[0], Ok(Renewal::Renewed { since: None, .. }))
}

fn source(error: &BackendError) -> String {
    std::error::Error::source(error).unwrap().to_string()
}

#[tokio::test]
async fn tickets_exclude_each_other_in_one_store_and_between_stores() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.store(), scratch.store());
    let (a, b) = (ticket("orders/42"), ticket("orders/42"));
    let first = token(&one, &a).await.unwrap();
    assert_eq!(token(&one, &b).await, None);
    assert_eq!(token(&two, &b).await, None);
    assert!(token(&two, &ticket("orders/43")).await.is_some());

    // Again: the same hold, the same token.
    assert_eq!(token(&one, &a).await, Some(first));
    assert!(renewed(&one, &a).await);
    assert!(!renewed(&two, &b).await);
    assert_eq!(
        two.release(&ticket("orders/42")).await.unwrap(),
        Release::NotHeld
    );
    assert_eq!(one.release(&a).await.unwrap(), Release::Released);
    assert_eq!(one.release(&a).await.unwrap(), Release::NotHeld);
    assert!(!renewed(&one, &a).await);

    let second = token(&two, &b).await.unwrap();
    assert!(second > first);
    drop(two);
    assert!(token(&one, &ticket("orders/42")).await.unwrap() > second);
}

#[tokio::test]
async fn store_has_its_capabilities_and_a_private_directory() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("made/here");
    let poll = PollRange::new(Duration::from_millis(1), Duration::from_millis(2));
    let store = FileStore::builder(&dir).poll(poll).build().unwrap();
    let mode = fs::metadata(&dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(store.dir(), dir);
    assert!(store.path(&name("../x")).starts_with(&dir));
    let capabilities = store.capabilities();
    assert_eq!(capabilities.poll, poll);
    assert_eq!(capabilities.waiting, Waiting::Poll);
    assert_eq!(capabilities.ends_by, EndsBy::Process);
    assert!(!capabilities.tells_loss);
    assert!(store.watch(&ticket("a")).await.is_err());

    fs::write(scratch.0.join("plain"), "").unwrap();
    let error = FileStore::new(scratch.0.join("plain")).unwrap_err();
    assert_eq!(error.operation(), "open");
}

#[tokio::test]
async fn each_name_is_a_lock_of_its_own() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let long = "x".repeat(512);
    let near = format!("{}y", "x".repeat(511));
    let names = [
        "a",
        "A",
        "a/b",
        "../a",
        ".",
        "..",
        "%2f",
        "/",
        "{a}",
        "a\nb",
        "\u{1F512}",
        "~",
        "\u{e9}",
        "e\u{301}",
        "\u{1F512}\u{1F512}",
        &long,
        &near,
    ];
    let mut tokens = Vec::new();
    for text in names {
        tokens.push(token(&store, &ticket(text)).await.unwrap());
    }
    let listed = store.list("").await.unwrap();
    let mut sorted = names.map(name).to_vec();
    sorted.sort();
    let seen: Vec<LockName> = listed.iter().map(|state| state.name.clone()).collect();
    assert_eq!(seen, sorted);
    // Nothing outside the directory, and nothing that a listing of it would not show.
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), names.len());
    assert_eq!(store.list("x").await.unwrap().len(), 2);
    assert_eq!(store.list("a/").await.unwrap().len(), 1);
}

/// The file of the lock says in which process its holder runs.
fn names_process(store: &FileStore, ticket: &Ticket, pid: u32) {
    let text = fs::read_to_string(store.path(&ticket.name)).unwrap();
    assert!(text.contains(&format!(" pid {pid} ")), "{text}");
}

#[tokio::test]
async fn inspect_shows_the_holder_until_its_release() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.store(), scratch.store());
    let a = ticket("a");
    assert_eq!(other.inspect(&a.name).await.unwrap(), None);
    let token = token(&store, &a).await.unwrap();
    let state = other.inspect(&a.name).await.unwrap().unwrap();
    assert!(state.holder_ids().eq([a.holder.to_string()]), "{state:?}");
    assert_eq!((state.token, state.remaining), (Some(token), None));
    names_process(&other, &a, std::process::id());
    store.release(&a).await.unwrap();
    assert_eq!(other.inspect(&a.name).await.unwrap(), None);
    assert!(other.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn broken_hold_ends_with_its_next_renewal() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.store(), scratch.store());
    let (a, b) = (ticket("a"), ticket("a"));
    assert_eq!(two.break_lock(&a.name).await.unwrap(), None);
    let first = token(&one, &a).await.unwrap();
    let state = two.break_lock(&a.name).await.unwrap().unwrap();
    assert!(state.holder_ids().eq([a.holder.to_string()]), "{state:?}");
    assert_eq!(state.token, Some(first));
    assert_eq!(two.inspect(&a.name).await.unwrap(), None);
    assert_eq!(two.break_lock(&a.name).await.unwrap(), None);

    let second = token(&two, &b).await.unwrap();
    assert!(second > first);
    assert!(!renewed(&one, &a).await);
    assert_eq!(one.release(&a).await.unwrap(), Release::NotHeld);
    assert!(renewed(&two, &b).await);
    assert_eq!(token(&one, &ticket("a")).await, None);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[tokio::test]
async fn broken_holder_that_comes_back_gets_a_new_token_or_waits() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.store(), scratch.store());
    let a = ticket("a");
    let first = token(&one, &a).await.unwrap();
    two.break_lock(&a.name).await.unwrap().unwrap();
    assert!(token(&one, &a).await.unwrap() > first);

    let b = ticket("a");
    two.break_lock(&a.name).await.unwrap().unwrap();
    assert!(token(&two, &b).await.is_some());
    assert_eq!(token(&one, &a).await, None);
    assert_eq!(one.release(&a).await.unwrap(), Release::NotHeld);
    assert!(renewed(&two, &b).await);
}

#[tokio::test]
async fn release_of_a_broken_hold_returns_not_held() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.store(), scratch.store());
    let (a, b) = (ticket("a"), ticket("a"));
    token(&one, &a).await.unwrap();
    two.break_lock(&a.name).await.unwrap().unwrap();
    token(&two, &b).await.unwrap();
    assert_eq!(one.release(&a).await.unwrap(), Release::NotHeld);
    let state = one.inspect(&a.name).await.unwrap().unwrap();
    assert!(state.holder_ids().eq([b.holder.to_string()]), "{state:?}");
}

/// Takers, breakers and lookers at once: tokens only ever grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tokens_grow_while_others_break_and_inspect() {
    let scratch = Scratch::new();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let store = scratch.store();
        tasks.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            while seen.len() < 400 {
                let ticket = ticket("a");
                if let Some(token) = token(&store, &ticket).await {
                    seen.push(token);
                    tokio::task::yield_now().await;
                    store.release(&ticket).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
            seen
        }));
    }
    let breaker = scratch.store();
    let breaking = tokio::spawn(async move {
        loop {
            breaker.break_lock(&name("a")).await.unwrap();
            breaker.inspect(&name("a")).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let mut all = Vec::new();
    for task in tasks {
        let seen = task.await.unwrap();
        assert!(seen.is_sorted_by(|one, two| one < two));
        all.extend(seen);
    }
    breaking.abort();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "a token was given twice");
}

#[tokio::test]
async fn tokens_grow_after_the_file_is_emptied_or_removed() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let mut last = None;
    let harms: [fn(&Path); 4] = [
        |path| assert!(!path.exists()),
        |path| fs::write(path, "").unwrap(),
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, [0; 400]).unwrap(),
    ];
    for harm in harms {
        let a = ticket("a");
        harm(&store.path(&a.name));
        let next = token(&store, &a).await;
        assert!(next > last);
        last = next;
        store.release(&a).await.unwrap();
    }
}

#[tokio::test]
async fn hold_outlives_an_emptied_file_but_not_a_removed_one() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let a = ticket("a");
    let first = token(&store, &a).await.unwrap();
    // As `exec 9>file` of a shell does before it waits for the lock.
    fs::write(store.path(&a.name), "").unwrap();
    assert!(renewed(&store, &a).await);
    assert_eq!(token(&store, &ticket("a")).await, None);
    assert_eq!(store.release(&a).await.unwrap(), Release::Released);
    let a = ticket("a");
    let second = token(&store, &a).await.unwrap();
    assert!(second > first);

    fs::remove_file(store.path(&a.name)).unwrap();
    assert!(!renewed(&store, &a).await);
    assert_eq!(store.release(&a).await.unwrap(), Release::NotHeld);
    assert!(token(&store, &ticket("a")).await.unwrap() > second);
}

#[tokio::test]
async fn released_ticket_is_always_refused() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let (held, never) = (ticket("a"), ticket("a"));
    token(&store, &held).await.unwrap();
    for released in [never, held] {
        store.release(&released).await.unwrap();
        let late = store.attempt(&released).await.unwrap_err();
        assert_eq!(late.outcome(), Outcome::Rejected);
    }
    assert!(token(&store, &ticket("a")).await.is_some());
}

#[tokio::test]
async fn files_of_other_programs_are_refused_and_left_unchanged() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let a = ticket("a");
    fs::write(store.path(&a.name), "precious").unwrap();
    let error = store.attempt(&a).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected);
    assert!(
        source(&error).contains("was left as it is: move it away"),
        "{}",
        source(&error)
    );
    assert_eq!(store.release(&a).await.unwrap(), Release::NotHeld);
    assert_eq!(store.purge(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(fs::read(store.path(&a.name)).unwrap(), b"precious");
}

/// Two names can share a file only if SHA-256 fails; played by putting one's file at the other's path.
#[tokio::test]
async fn file_of_another_name_is_an_error() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let (one, two) = (ticket(&"x".repeat(500)), ticket(&"y".repeat(500)));
    token(&store, &one).await.unwrap();
    store.release(&one).await.unwrap();
    fs::rename(store.path(&one.name), store.path(&two.name)).unwrap();
    let error = store.attempt(&two).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected);
    assert!(source(&error).contains("of another name"));
}

#[tokio::test]
async fn purge_removes_free_and_old_files() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.store(), scratch.store());
    let (free, held) = (ticket("free"), ticket("held"));
    let first = token(&store, &free).await.unwrap();
    store.release(&free).await.unwrap();
    token(&store, &held).await.unwrap();
    assert_eq!(other.purge(Duration::from_secs(3600)).await.unwrap(), 0);
    for ticket in [&free, &held] {
        let file = fs::File::options()
            .write(true)
            .open(store.path(&ticket.name))
            .unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    assert_eq!(other.purge(Duration::from_secs(3600)).await.unwrap(), 1);
    assert!(!store.path(&free.name).exists());
    assert!(renewed(&store, &held).await);
    assert!(token(&store, &ticket("free")).await.unwrap() > first);
}

/// The second process of the tests below. Prints `held <token>` once it has the lock `a`.
#[test]
#[ignore = "only the second process of other tests runs it"]
fn second_process() {
    let store = FileStore::new(std::env::var_os(DIR).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let ticket = ticket("a");
    let token = runtime.block_on(token(&store, &ticket)).unwrap();
    println!("\nheld {token}");
    std::io::stdout().flush().unwrap();
    // Until the other process closes the pipe, or kills this one.
    let _ = std::io::stdin().read_line(&mut String::new());
    let released = runtime.block_on(store.release(&ticket)).unwrap();
    println!("\nreleased {released:?}");
}

struct Second {
    child: Child,
    token: u64,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Second {
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "file_store::second_process",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let token = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("held ")?.parse().ok());
        Self {
            child,
            token: token.expect("the second process takes the lock"),
            lines,
        }
    }

    fn let_go(&mut self) -> bool {
        drop(self.child.stdin.take());
        let released = self
            .lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line == "released Released");
        released && self.child.wait().unwrap().success()
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn another_process_excludes_this_one_until_it_releases() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let mut second = Second::start(&scratch.0);
    let a = ticket("a");
    assert_eq!(token(&store, &a).await, None);
    names_process(&store, &a, second.child.id());
    assert!(second.let_go());
    assert!(token(&store, &a).await.unwrap().get() > second.token);
}

#[tokio::test]
async fn killed_process_holds_nothing() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let mut second = Second::start(&scratch.0);
    let a = ticket("a");
    assert!(store.inspect(&a.name).await.unwrap().is_some());
    second.child.kill().unwrap();
    second.child.wait().unwrap();
    assert_eq!(store.inspect(&a.name).await.unwrap(), None);
    assert!(token(&store, &a).await.unwrap().get() > second.token);
}

#[tokio::test]
async fn child_program_does_not_inherit_the_lock() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let a = ticket("a");
    token(&store, &a).await.unwrap();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    drop(store);
    assert!(token(&scratch.store(), &a).await.is_some());
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Runs `flock(1)` on the file of `a` until the pipe is closed.
fn flock_program(path: &Path) -> (Child, ChildStdin) {
    let mut child = Command::new("flock")
        .args(["--nonblock".as_ref(), path.as_os_str(), "sh".as_ref()])
        .args(["-c", "echo locked; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock(1) of util-linux must be installed for this test");
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "locked\n");
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs flock(1) of util-linux")]
async fn flock_program_and_store_exclude_each_other() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let a = ticket("a");
    // The program makes an empty file.
    let (mut child, stdin) = flock_program(&store.path(&a.name));
    assert_eq!(token(&store, &a).await, None);
    let state = store.inspect(&a.name).await.unwrap().unwrap();
    assert!(state.holder_ids().eq(["flock"]), "{state:?}");
    drop(stdin);
    child.wait().unwrap();

    let first = token(&store, &a).await.unwrap();
    let refused = Command::new("flock")
        .args(["--nonblock".as_ref(), store.path(&a.name).as_os_str()])
        .arg("true")
        .status()
        .unwrap();
    assert!(!refused.success());
    store.release(&a).await.unwrap();
    let a = ticket("a");

    // And again on a file with content, which it leaves as it is.
    let (mut child, stdin) = flock_program(&store.path(&a.name));
    assert_eq!(token(&store, &a).await, None);
    let state = store.inspect(&a.name).await.unwrap().unwrap();
    assert!(state.holder_ids().eq(["flock"]), "{state:?}");
    assert_eq!(state.token, Some(first));
    drop(stdin);
    child.wait().unwrap();
    assert!(token(&store, &a).await.unwrap() > first);
}

/// `flock(1)` opens the file first, and locks it when it can.
#[tokio::test]
async fn program_that_waits_for_the_file_gets_the_lock() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let a = ticket("a");
    token(&store, &a).await.unwrap();
    let waiting = fs::File::open(store.path(&a.name)).unwrap();
    assert!(waiting.try_lock().is_err());
    store.release(&a).await.unwrap();
    waiting.try_lock().unwrap();
    assert_eq!(token(&store, &ticket("a")).await, None);
}

/// A process that looks at a free lock must not make it appear held.
#[tokio::test]
async fn looks_do_not_disturb_attempts() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let a = ticket("a");
    token(&store, &a).await.unwrap();
    store.release(&a).await.unwrap();
    let eye = fs::File::open(store.path(&a.name)).unwrap();
    for _ in 0..20 {
        let a = ticket("a");
        eye.try_lock_shared().unwrap();
        // The attempt meets the look, which ends before its next try.
        let look_ends = async { eye.unlock().unwrap() };
        let (token, ()) = tokio::join!(token(&store, &a), look_ends);
        assert!(token.is_some());
        store.release(&a).await.unwrap();
    }
}

/// As a child between `fork` and `exec` has it.
#[tokio::test]
async fn a_copy_of_the_open_file_keeps_nothing() {
    let scratch = Scratch::new();
    let store = scratch.store();
    for _ in 0..2 {
        let (first, second) = (ticket("a"), ticket("a"));
        token(&store, &first).await.unwrap();
        let copy = store.open_file(first.holder).unwrap();
        assert_eq!(store.release(&first).await.unwrap(), Release::Released);
        token(&store, &second).await.unwrap();
        drop(copy);
        store.release(&second).await.unwrap();
    }
    let first = ticket("a");
    token(&store, &first).await.unwrap();
    let copy = store.open_file(first.holder).unwrap();
    drop(store);
    token(&scratch.store(), &ticket("a")).await.unwrap();
    drop(copy);
}

/// A directory that cannot be looked into for a moment must not make a clean release a loss.
#[tokio::test]
async fn a_release_that_fails_has_no_effect_and_can_be_repeated() {
    let scratch = Scratch::new();
    let [dir, away] = ["locks", "away"].map(|name| scratch.0.join(name));
    let store = FileStore::new(&dir).unwrap();
    let ours = ticket("a");
    let first = token(&store, &ours).await.unwrap();
    fs::rename(&dir, &away).unwrap();
    fs::write(&dir, "").unwrap();
    assert!(store.release(&ours).await.is_err());
    fs::remove_file(&dir).unwrap();
    fs::rename(&away, &dir).unwrap();
    assert!(renewed(&store, &ours).await);
    assert_eq!(token(&store, &ours).await, Some(first));
    assert_eq!(store.release(&ours).await.unwrap(), Release::Released);
}
