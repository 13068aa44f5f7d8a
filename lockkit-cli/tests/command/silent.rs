//! A server that accepts a login and then says nothing more.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use lockkit::clock::{BootClock, Clock};

use crate::stage::{Running, Stage};

/// Starts a server that speaks PostgreSQL until a client is logged in, and returns its port.
fn start() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for client in listener.incoming() {
            silent.push(log_in(client.unwrap()));
        }
    });
    port
}

fn log_in(mut client: TcpStream) -> TcpStream {
    let mut length = [0; 4];
    client.read_exact(&mut length).unwrap();
    let rest = usize::try_from(u32::from_be_bytes(length)).unwrap() - 4;
    client.read_exact(&mut vec![0; rest]).unwrap();
    // The login succeeded, and the server is ready.
    let reply = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    client.write_all(reply).unwrap();
    client
}

#[test]
fn a_server_that_falls_silent_is_69_with_its_address() {
    let port = start();
    let url = format!("postgres://u@127.0.0.1:{port}/d?sslmode=disable&connect_timeout=1s");
    let stage = Stage::at(Some(url));
    let clock = BootClock::default();
    let began = clock.now();
    let calls: [&[&str]; 3] = [
        &["run", "--wait", "1s", "job", "--", "true"],
        &["run", "-n", "job", "--", "true"],
        &["status", "job"],
    ];
    let calls = calls.map(|arguments| {
        let mut command = stage.lockkit();
        command.args(arguments);
        Running::start(command)
    });
    for mut call in calls {
        assert_eq!(call.code(), Some(69));
        let said = call.said();
        let expected = format!("127.0.0.1:{port}: no reply within 1s");
        assert!(said.contains(&expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let took = clock.now().since(began);
    assert!(took.as_secs() < 8, "{took:?}");
}
