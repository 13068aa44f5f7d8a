//! What an error says about the effect of a step is true, wherever the step fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkit_core::contract::{Attempt, DistributedLock, Mode, Ticket};
use lockkit_core::{BackendError, Outcome};
use lockkit_redis::{Command, Fenced, FencedError, Protocol, RedisStore, Script};
use tokio::time::{sleep, timeout};

use crate::connection::ticket;
use crate::replies::{Fate, Way};
use crate::server::Server;

/// A lease of which others wait for the end.
const TTL: Duration = Duration::from_secs(1);
/// A lease that does not end before its case.
const LONG: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Attempt,
    AttemptAgain,
    AttemptBehindAHolder,
    AttemptAtTheHead,
    Renewal,
    Release,
    ReleaseBesideAWaiter,
    Withdrawal,
    Break,
    Share,
    ShareBesideAReader,
    ShareBehindAWriter,
    RenewalOfAShare,
    Unshare,
    UnshareBesideAWaiter,
    BreakOfShares,
    Note,
    Adoption,
    AdoptionOfAShare,
}

const STEPS: [Step; 19] = [
    Step::Attempt,
    Step::AttemptAgain,
    Step::AttemptBehindAHolder,
    Step::AttemptAtTheHead,
    Step::Renewal,
    Step::Release,
    Step::ReleaseBesideAWaiter,
    Step::Withdrawal,
    Step::Break,
    Step::Share,
    Step::ShareBesideAReader,
    Step::ShareBehindAWriter,
    Step::RenewalOfAShare,
    Step::Unshare,
    Step::UnshareBesideAWaiter,
    Step::BreakOfShares,
    Step::Note,
    Step::Adoption,
    Step::AdoptionOfAShare,
];

impl Step {
    /// The modes of the ticket of the step, and of the other one.
    const fn modes(self) -> (Mode, Mode) {
        use Step::{
            AdoptionOfAShare, BreakOfShares, Note, RenewalOfAShare, Share, ShareBehindAWriter,
            ShareBesideAReader, Unshare, UnshareBesideAWaiter,
        };
        match self {
            ShareBesideAReader | BreakOfShares => (Mode::Read, Mode::Read),
            Share | ShareBehindAWriter | RenewalOfAShare | Unshare | UnshareBesideAWaiter
            | AdoptionOfAShare | Note => (Mode::Read, Mode::Write),
            _ => (Mode::Exclusive, Mode::Exclusive),
        }
    }
}

/// One step in a world of its own.
struct World {
    lock: String,
    /// Through which the step fails.
    store: RedisStore,
    healthy: RedisStore,
    subject: Ticket,
    other: Ticket,
}

impl World {
    /// What the step finds.
    async fn prepare(&self, step: Step, server: &Server) {
        let (healthy, subject, other) = (&self.healthy, &self.subject, &self.other);
        let asked: &[&Ticket] = match step {
            Step::Attempt | Step::Share => &[],
            Step::AttemptAgain
            | Step::Renewal
            | Step::RenewalOfAShare
            | Step::Release
            | Step::Unshare
            | Step::Note
            | Step::Break => &[subject],
            Step::AttemptBehindAHolder
            | Step::ShareBesideAReader
            | Step::ShareBehindAWriter
            | Step::Adoption
            | Step::AdoptionOfAShare => &[other],
            Step::ReleaseBesideAWaiter | Step::UnshareBesideAWaiter | Step::BreakOfShares => {
                &[subject, other]
            }
            Step::Withdrawal | Step::AttemptAtTheHead => &[other, subject],
        };
        for ticket in asked {
            healthy.attempt(ticket).await.unwrap();
        }
        if step == Step::AttemptAtTheHead {
            server.cli(&["DEL", &self.lock]);
        }
    }

    async fn carry_out(&self, step: Step) -> Result<(), BackendError> {
        let (store, subject) = (&self.store, &self.subject);
        match step {
            Step::Renewal | Step::RenewalOfAShare => {
                let answers = store.renew(std::slice::from_ref(subject)).await;
                answers.into_iter().next().unwrap().map(drop)
            }
            Step::Release
            | Step::ReleaseBesideAWaiter
            | Step::Unshare
            | Step::UnshareBesideAWaiter
            | Step::Withdrawal => store.release(subject).await.map(drop),
            Step::Break | Step::BreakOfShares => store.break_lock(&subject.name).await.map(drop),
            Step::Note => store.note(subject, "on shard 7").await.map(drop),
            Step::Adoption | Step::AdoptionOfAShare => {
                store.adopt(self.other.holder, subject).await.map(drop)
            }
            _ => store.attempt(subject).await.map(drop),
        }
    }

    /// Who holds and with which note, as the server has it.
    async fn holders(&self) -> Vec<(String, Option<String>)> {
        let state = self.healthy.inspect(&self.subject.name).await.unwrap();
        let holders = state.into_iter().flat_map(|state| state.holders);
        holders.map(|holder| (holder.id, holder.note)).collect()
    }

    /// The lock is free, or held for a lease at most.
    async fn ends(&self, case: &str) {
        let state = self.healthy.inspect(&self.subject.name).await.unwrap();
        if let Some(held) = state.filter(|state| !state.holders.is_empty()) {
            let left = held.remaining;
            assert!(
                left.is_some_and(|left| left <= self.subject.ttl),
                "{case}: {left:?}"
            );
        }
    }

    /// Somebody else gets the lock.
    async fn another_is_granted(&self, case: &str) {
        self.healthy.release(&self.other).await.unwrap();
        let newcomer = ticket(&self.lock);
        let granted = async {
            while !matches!(
                self.healthy.attempt(&newcomer).await.unwrap(),
                Attempt::Granted(_)
            ) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let answer = timeout(Duration::from_secs(10), granted).await;
        assert!(answer.is_ok(), "{case}: nobody else gets the lock");
    }
}

/// Request `number` of the step meets each fate: before it is written, or after it was carried out.
#[tokio::test]
async fn failed_request_blocks_no_other_client() {
    const FATES: [Fate; 10] = [
        Fate::Refused("-READONLY You can't write against a read only replica.\r\n"),
        Fate::Refused("-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
        Fate::Refused("-NOPERM this user has no permissions to run the 'evalsha' command\r\n"),
        Fate::Refused("-ERR something else\r\n"),
        Fate::CutBefore,
        Fate::Answered("-READONLY You can't write against a read only replica.\r\n"),
        Fate::Answered("-NOPERM this user has no permissions to run the 'evalsha' command\r\n"),
        Fate::Answered("-ERR something else\r\n"),
        Fate::Answered("+what is that\r\n"),
        Fate::CutAfter,
    ];
    let server = Server::start(&[]).await;
    for step in STEPS {
        // The second is sent when the server does not know the script.
        let cases = [0, 1].into_iter().flat_map(|number| {
            let fates = FATES.iter().enumerate();
            fates.map(move |(at, fate)| (number, at, *fate))
        });
        let server = &server;
        join_all(cases.map(async |(number, at, fate)| {
            let armed = Arc::new(AtomicUsize::new(usize::MAX));
            let seen = Arc::clone(&armed);
            let way = Way::with(server.port, move |request| {
                if !request.windows(4).any(|word| word == b"EVAL") {
                    return Fate::Passes;
                }
                match seen.fetch_sub(1, Ordering::Relaxed) {
                    0 => fate,
                    1 => Fate::Refused("-NOSCRIPT No matching script.\r\n"),
                    _ => Fate::Passes,
                }
            });
            let way = way.await;
            let lock = format!("{step:?}/{number}/{at}");
            let store = RedisStore::builder().tcp("127.0.0.1", way.port);
            let world = World {
                store: store.protocol(Protocol::Resp2).connect().await.unwrap(),
                healthy: server.open().await,
                subject: ticket(&lock).with_ttl(TTL).with_mode(step.modes().0),
                other: ticket(&lock).with_ttl(TTL).with_mode(step.modes().1),
                lock,
            };
            world.prepare(step, server).await;
            let case = format!("{step:?}, request {number}: {fate:?}");
            armed.store(number, Ordering::Relaxed);
            let Err(error) = world.carry_out(step).await else {
                panic!("{case}: no error");
            };
            world.ends(&case).await;
            if error.outcome() == Outcome::Indeterminate {
                // Which the client repeats, or withdraws.
                world.healthy.release(&world.subject).await.unwrap();
            }
            world.another_is_granted(&case).await;
        }))
        .await;
    }
}

/// Each command of each step is forbidden once, so that the step fails there.
#[tokio::test]
async fn step_that_fails_at_any_command_reports_its_effect() {
    const COMMANDS: &str = "get set del exists type time hget hset hdel hexists pexpire pttl lindex \
                            lrem rpush publish hlen hkeys hvals evalsha zadd zrem zcard zscore \
                            zrangebyscore zrevrange pexpireat";
    let server = Server::start(&[]).await;
    for command in COMMANDS.split_whitespace() {
        let rights = format!("ACL SETUSER no-{command} on >s3cret ~* &* +@all -{command}");
        let rights: Vec<&str> = rights.split(' ').collect();
        assert_eq!(server.cli(&rights), "OK");
    }
    let mut failed = 0;
    for step in STEPS {
        let server = &server;
        let commands = COMMANDS.split_whitespace();
        let cases = commands.flat_map(|command| [TTL, LONG].map(|ttl| (command, ttl)));
        let errors = join_all(cases.map(async |(command, ttl)| {
            let lock = format!("{step:?}/{command}/{ttl:?}");
            let store = server.builder().user(format!("no-{command}"));
            let world = World {
                store: store.password("s3cret").connect().await.unwrap(),
                healthy: server.open().await,
                subject: ticket(&lock).with_ttl(ttl).with_mode(step.modes().0),
                other: ticket(&lock).with_ttl(ttl).with_mode(step.modes().1),
                lock,
            };
            world.prepare(step, server).await;
            let before = world.holders().await;
            let case = format!("{step:?} without {command}");
            let answer = world.carry_out(step).await;
            world.ends(&case).await;
            match &answer {
                Ok(()) => {}
                Err(error) if error.outcome() == Outcome::Indeterminate => {
                    world.healthy.release(&world.subject).await.unwrap();
                }
                Err(error) if ttl == LONG => {
                    assert_eq!(world.holders().await, before, "{case}: {error:?}");
                }
                Err(_) => {}
            }
            let is_free = answer.is_err() || matches!(step, Step::Release | Step::Unshare);
            if is_free && ttl == TTL {
                world.another_is_granted(&case).await;
            }
            usize::from(answer.is_err())
        }));
        failed += errors.await.into_iter().sum::<usize>();
    }
    assert!(failed > 240, "only {failed} cases failed");
}

#[tokio::test]
async fn failed_fenced_work_is_indeterminate() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let ticket = ticket("stock");
    let Attempt::Granted(grant) = store.attempt(&ticket).await.unwrap() else {
        panic!()
    };
    server.cli(&["RPUSH", "list", "x"]);
    let outcome = |answer: Result<_, FencedError>| match answer {
        Err(FencedError::Backend(error)) => error.outcome(),
        other => panic!("{other:?}"),
    };
    let fenced = Fenced::new(&store, ticket.clone(), grant.token);
    let half = [
        Command::new("SET").arg("a").arg("1"),
        Command::new("INCR").arg("list"),
    ];
    let answer = fenced.commands(&half).await.map(drop);
    assert_eq!(outcome(answer), Outcome::Indeterminate);
    assert_eq!(server.cli(&["GET", "a"]), "1");
    // What a script says itself may come after its writes, whatever it is.
    for text in [
        "NOPERM no",
        "LATE LOCKKITFENCED",
        "ERR no",
        "BUSY no",
        "NOSCRIPT no",
    ] {
        for says in ["return", "error"] {
            let script = format!("redis.call('INCR', KEYS[1]) {says}(redis.error_reply('{text}'))");
            let answer = fenced.script(&Script::new(&script), &["a"], &[]).await;
            assert_eq!(
                outcome(answer.map(drop)),
                Outcome::Indeterminate,
                "{says} {text}"
            );
        }
    }
    assert_eq!(server.cli(&["GET", "a"]), "11");
    // What it says within its own text is no code of the server.
    for text in ["queue -BUSY now", "-READONLY no"] {
        let script = format!("redis.call('INCR', KEYS[1]) error('{text}')");
        let answer = fenced.script(&Script::new(&script), &["a"], &[]).await;
        let outcome = outcome(answer.map(drop));
        assert_eq!(outcome, Outcome::Indeterminate, "{text}");
    }
    assert_eq!(server.cli(&["GET", "a"]), "13");
    // What it raises and catches itself is its own.
    let script = "local ok, it = pcall(error, {err = 'mine'}) return it";
    let answer = fenced.script(&Script::new(script), &["a"], &[]).await;
    let answer = answer.unwrap();
    assert_eq!(answer.as_str(), Some("mine"), "{answer:?}");
    // A user who may not run it at all has changed nothing.
    server.cli(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
    let answer = fenced.commands(&half).await.map(drop);
    assert_eq!(outcome(answer), Outcome::Rejected);
}

/// An error within a reply is what a command of the script has returned: the script went on.
#[tokio::test]
async fn error_in_a_list_is_a_reply() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let ticket = ticket("stock");
    let Attempt::Granted(grant) = store.attempt(&ticket).await.unwrap() else {
        panic!()
    };
    let fenced = Fenced::new(&store, ticket, grant.token);
    for (text, runs) in [
        ("BUSY no", "1"),
        ("NOSCRIPT no", "2"),
        ("LOCKKITFENCED no", "3"),
        ("READONLY no", "4"),
        ("WRONGTYPE no", "5"),
    ] {
        let list = format!("return {{7, redis.error_reply('{text}')}}");
        let script = Script::new(&format!("redis.call('INCR', KEYS[1]) {list}"));
        let reply = fenced.script(&script, &["a"], &[]).await.unwrap();
        assert_eq!(reply.as_list()[0].as_int(), Some(7), "{text}");
        assert_eq!(reply.as_list()[1].as_str(), Some(text), "{text}");
        assert_eq!(server.cli(&["GET", "a"]), runs, "{text}");
    }
}
