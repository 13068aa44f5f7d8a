//! Processes that want one lock of a server.

use std::time::Duration;

use lockkit::clock::{BootClock, Clock};
use rustix::process::Signal;

use crate::server::Server;
use crate::stage::{Running, Stage, eventually};

const HOLD: &str = "echo $LOCKKIT_TOKEN; exec sleep 600";
const TTL: Duration = Duration::from_secs(2);
/// What the end of a lease may take to be noticed, on a busy machine too.
const NOTICE: Duration = Duration::from_millis(1500);

struct World {
    stage: Stage,
    server: Server,
}

impl World {
    fn new() -> Self {
        Self::with_options("")
    }

    fn with_options(options: &str) -> Self {
        let server = Server::start();
        let stage = Stage::at(Some(server.url() + options));
        Self { stage, server }
    }

    /// Runs a script under the lock, with a lease of [`TTL`].
    fn run(&self, script: &str) -> Running {
        let ttl = format!("{}ms", TTL.as_millis());
        self.stage.run(&["--ttl", &ttl], "job", script)
    }

    /// Waits until the queue has this length.
    fn queued(&self, count: u32) {
        eventually("they stand in the queue", || {
            self.server.ask(&["LLEN", "lockkit_queue:{job}"]) == count.to_string()
        });
    }
}

fn token(running: &mut Running) -> u64 {
    running.line().parse().unwrap()
}

pub(crate) fn kill_9_of_the_holder_frees_the_lock_within_its_lease() {
    let world = World::new();
    let clock = BootClock::default();
    for _ in 0..3 {
        let mut holder = world.run(HOLD);
        let before = token(&mut holder);
        let mut waiter = world.run(HOLD);
        world.queued(1);
        let killed = clock.now();
        holder.signal(Signal::KILL);
        let after = token(&mut waiter);
        let took = clock.now().since(killed);
        println!("killed, and served after {took:?} of a lease of {TTL:?}");
        assert!(took <= TTL + NOTICE, "{took:?}");
        assert!(after > before, "{after} after {before}");
        waiter.signal(Signal::TERM);
        waiter.wait();
    }
}

pub(crate) fn the_token_grows_over_everything() {
    let mut world = World::new();
    let mut last = 0;
    let mut grown = |running: &mut Running, what: &str| {
        let token = token(running);
        println!("{what}: {token}");
        assert!(token > last, "{what}: {token} after {last}");
        last = token;
    };
    grown(&mut world.run("echo $LOCKKIT_TOKEN"), "first");

    let mut holder = world.run("echo $LOCKKIT_TOKEN");
    grown(&mut holder, "after a release");
    assert_eq!(holder.code(), Some(0));

    let mut holder = world.run(HOLD);
    grown(&mut holder, "after another");
    holder.signal(Signal::KILL);
    let mut holder = world.run(HOLD);
    grown(&mut holder, "after the end of a lease");

    assert_eq!(world.stage.code(&["break", "job", "--yes"]), Some(0));
    let mut next = world.run(HOLD);
    grown(&mut next, "after a break");
    assert_eq!(holder.code(), Some(76), "the broken holder learns of it");

    assert_eq!(world.server.ask(&["FLUSHALL"]), "OK");
    let mut holder = world.run(HOLD);
    grown(&mut holder, "after FLUSHALL");
    assert_eq!(next.code(), Some(76), "the holder of before learns of it");

    world.server.restart();
    let mut next = world.run("echo $LOCKKIT_TOKEN");
    grown(&mut next, "after a restart without data");
    assert_eq!(holder.code(), Some(76), "the holder of before learns of it");
}

pub(crate) fn no_two_run_at_once() {
    let world = World::new();
    let script = format!(
        "mkdir {0} || exit 9; sleep 0.01; rmdir {0} || exit 9",
        world.stage.dir().join("inside").display()
    );
    let mut all: Vec<_> = (0..12).map(|_| world.run(&script)).collect();
    for one in &mut all {
        assert_eq!(one.code(), Some(0));
    }
    assert_eq!(
        world.server.ask(&["KEYS", "*"]),
        "redisson_lock_token:{job}"
    );
}

pub(crate) fn a_job_that_ends_sooner_leaves_its_lock_to_a_lease() {
    let world = World::new();
    let clock = BootClock::default();
    let least = TTL * 3;
    let at_least = format!("{}ms", least.as_millis());
    let options = ["--ttl", "2s", "--at-least", &at_least];
    let mut job = world.stage.run(&options, "job", "echo ran; exit 3");
    assert_eq!(job.line(), "ran");
    let ran = clock.now();
    assert_eq!(job.code(), Some(3));
    let took = clock.now().since(ran);
    assert!(took < TTL, "it stayed for {took:?}");
    let mut next = world.run("echo ran");
    assert_eq!(next.line(), "ran");
    let kept = clock.now().since(ran);
    println!("kept for {kept:?} of {least:?}");
    // It began a moment before it said so.
    assert!(kept + Duration::from_millis(500) >= least, "{kept:?}");
    assert!(kept <= least + NOTICE, "{kept:?}");
}

pub(crate) fn shared_runs_share_and_exclude_others() {
    let world = World::new();
    let shared = |script: &str| world.stage.run(&["--shared"], "job", script);
    let mut readers = [shared(HOLD), shared(HOLD)];
    let tokens = [0, 1].map(|at: usize| token(&mut readers[at]));
    assert_ne!(tokens[0], tokens[1]);
    assert_eq!(
        world.stage.code(&["run", "-n", "job", "--", "true"]),
        Some(75)
    );
    let status = world.stage.call(&["status", "job"]).stdout;
    let status = String::from_utf8(status).unwrap();
    assert_eq!(status.matches("holder ").count(), 2, "{status}");
    // One that excludes others waits for both, and keeps later readers out.
    let mut writer = world.run("echo $LOCKKIT_MODE; exec sleep 600");
    world.queued(1);
    assert_eq!(
        world
            .stage
            .code(&["run", "-n", "--shared", "job", "--", "true"]),
        Some(75)
    );
    for reader in &mut readers {
        reader.signal(Signal::TERM);
        reader.wait();
    }
    assert_eq!(writer.line(), "exclusive");
    writer.signal(Signal::TERM);
    writer.wait();
    // A reader inside a reader waits for nobody; one that excludes others would wait for itself.
    let inside = |options: &str| {
        let command = env!("CARGO_BIN_EXE_lockkit");
        format!("echo $LOCKKIT_MODE; {command} run {options} job -- true; echo $?")
    };
    for (options, code) in [("--shared", "0"), ("--permits 2", "0"), ("", "64")] {
        let mut outer = shared(&inside(options));
        assert_eq!(outer.line(), "shared");
        assert_eq!(outer.line(), code, "{options}");
        assert_eq!(outer.code(), Some(0));
    }
    let run = format!("{} run", env!("CARGO_BIN_EXE_lockkit"));
    // Two outer readers leave no room for one of two permits.
    let third = format!("{run} --shared job -- {run} --permits 2 job -- true; echo $?");
    assert_eq!(shared(&third).line(), "64");
    // Another reader has a later token than the outer one.
    let later = format!(
        "export OUTER=\"$LOCKKIT_HELD\"; {run} --shared job -- \
         sh -c 'LOCKKIT_HELD=\"$OUTER\" {run} job -- true'; echo $?"
    );
    assert_eq!(shared(&later).line(), "64");
}

/// A grant that is pushed lasts three heartbeats until it is renewed, which is not much more than `--kill-after`.
pub(crate) fn job_that_waited_runs_on_while_its_first_lease_is_short() {
    let world = World::with_options("?recheck=2s");
    let mut holder = world.stage.run(&[], "job", HOLD);
    token(&mut holder);
    let mut waiter = world.stage.run(&[], "job", "sleep 3; exit 3");
    world.queued(1);
    holder.signal(Signal::TERM);
    holder.wait();
    assert_eq!(waiter.code(), Some(3));
}

pub(crate) fn permits_limit_how_many_run() {
    let world = World::new();
    let permit = |script: &str| world.stage.run(&["--permits", "2"], "job", script);
    let mut running = [permit(HOLD), permit(HOLD)];
    for one in &mut running {
        token(one);
    }
    let mut third = permit("echo $LOCKKIT_MODE");
    world.queued(1);
    running[0].signal(Signal::TERM);
    assert_eq!(third.line(), "permit");
    assert_eq!(third.code(), Some(0));
    running[1].signal(Signal::TERM);
    for one in &mut running {
        one.wait();
    }
}
