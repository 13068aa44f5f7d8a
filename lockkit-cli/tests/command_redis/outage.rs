//! Processes whose server is away.

use std::time::Duration;

use lockkit::clock::{BootClock, Clock};
use rustix::process::Signal;

use crate::server::Server;
use crate::stage::Stage;

pub(crate) fn a_server_that_is_away_at_the_start_is_waited_for() {
    for wait in [["--wait", "15s"].as_slice(), &[]] {
        let mut server = Server::start();
        let stage = Stage::at(Some(server.url()));
        server.kill();
        let mut command = stage.lockkit();
        command.args(["run", "-v"]).args(wait);
        command.args(["job", "--", "echo", "ran"]);
        let mut running = crate::stage::Running::start(command);
        let said = running.said_line();
        assert!(said.contains("does not respond yet; retrying"), "{said}");
        server.restart_killed();
        assert_eq!(running.line(), "ran");
        assert_eq!(running.code(), Some(0));
    }
}

pub(crate) fn a_server_that_stays_away_is_69_when_the_wait_ends() {
    let mut server = Server::start();
    let stage = Stage::at(Some(server.url()));
    server.kill();
    let clock = BootClock::default();
    for (options, least) in [(["--wait", "1s"].as_slice(), 500), (&["-n"], 0)] {
        let began = clock.now();
        let mut running = stage.run(options, "job", "echo ran");
        assert_eq!(running.code(), Some(69));
        let took = clock.now().since(began);
        assert!(took >= Duration::from_millis(least), "{took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
        let said = running.said();
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

pub(crate) fn a_wait_that_ends_while_the_server_is_dead_is_69_in_one_line() {
    let mut server = Server::start();
    let stage = Stage::at(Some(server.url()));
    let mut holder = stage.run(&[], "job", "echo ready; exec sleep 600");
    holder.line();
    let mut waiter = stage.run(&["--wait", "2s"], "job", "echo ran");
    server.queued("job");
    server.kill();
    assert_eq!(waiter.code(), Some(69));
    let said = waiter.said();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!said.contains("release"), "{said}");
    holder.signal(Signal::KILL);
}

pub(crate) fn a_wait_that_ends_while_the_server_is_frozen_names_it() {
    let server = Server::start();
    let stage = Stage::at(Some(server.url()));
    let mut holder = stage.run(&[], "job", "echo ready; exec sleep 600");
    holder.line();
    let mut waiter = stage.run(&["--wait", "2s"], "job", "echo ran");
    server.queued("job");
    server.freeze();
    assert_eq!(waiter.code(), Some(69));
    let said = waiter.said();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no answer within"), "{said}");
    let place = server.url().replace("redis://", "");
    assert!(said.contains(&format!("({place})")), "{said}");
    holder.signal(Signal::KILL);
}

pub(crate) fn a_lease_that_is_not_renewed_ends_with_the_reason() {
    let server = Server::start();
    let stage = Stage::at(Some(server.url()));
    let mut holder = stage.run(&["--ttl", "3s"], "job", "echo ready; exec sleep 600");
    holder.line();
    server.freeze();
    assert_eq!(holder.code(), Some(76));
    let said = holder.said();
    assert!(said.contains("was not renewed in time"), "{said}");
    assert!(
        said.contains("; the last renewal failed: renew of the redis store failed: no answer"),
        "{said}"
    );
}

pub(crate) fn a_renewal_just_before_the_end_keeps_the_program() {
    let server = Server::start();
    let url = format!("{}?response_timeout=20s", server.url());
    let stage = Stage::at(Some(url));
    // Without a renewal, the program would get SIGTERM eight seconds after the grant.
    let mut holder = stage.run(&["--ttl", "12s"], "job", "echo ready; sleep 9");
    holder.line();
    std::thread::sleep(Duration::from_secs(1));
    server.freeze();
    std::thread::sleep(Duration::from_millis(6200));
    server.thaw();
    assert_eq!(holder.code(), Some(0));
    assert_eq!(holder.said(), "");
}

pub(crate) fn a_release_without_an_answer_is_told_once() {
    let mut server = Server::start();
    let stage = Stage::at(Some(server.url()));
    let mut holder = stage.run(&[], "job", "echo ready; exec sleep 600");
    holder.line();
    server.kill();
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(143));
    let said = holder.said();
    assert_eq!(said.lines().count(), 1, "{said}");
}
