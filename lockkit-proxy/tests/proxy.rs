//! The fault proxy in front of a server that echoes.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lockkit_proxy::{Direction, Dropped, Fate, Flow, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const SHORT: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

/// Echoes, and tells what it received.
async fn echo() -> (SocketAddr, mpsc::UnboundedReceiver<Vec<u8>>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            connections.spawn(async move {
                stream.set_nodelay(true).unwrap();
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    tell.send(buffer[..length].to_vec()).ok();
                    if stream.write_all(&buffer[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (addr, told, tasks)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Connects as soon as connections are accepted again.
async fn accepted(proxy: &Proxy) -> TcpStream {
    loop {
        if let Ok(stream) = TcpStream::connect(proxy.addr()).await {
            return stream;
        }
        tokio::task::yield_now().await;
    }
}

/// Sends four bytes and reads them back.
async fn ask(stream: &mut TcpStream, text: &[u8; 4]) -> io::Result<[u8; 4]> {
    stream.write_all(text).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn passes_bytes_and_counts_them() {
    let (addr, _told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    let mut first = connect(&proxy).await;
    assert_eq!(ask(&mut first, b"ping").await.unwrap(), *b"ping");
    let mut second = connect(&proxy).await;
    assert_eq!(ask(&mut second, b"pong").await.unwrap(), *b"pong");
    // The end of one side reaches the other.
    second.shutdown().await.unwrap();
    assert_eq!(second.read(&mut [0; 1]).await.unwrap(), 0);
    let counts = proxy.counts();
    assert_eq!(counts.connections, 2);
    assert_eq!((counts.request_bytes, counts.reply_bytes), (8, 8));
}

#[tokio::test]
async fn counts_a_round_trip_for_each_request_that_was_answered_before_the_next() {
    let (addr, mut told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    let mut stream = connect(&proxy).await;
    for _ in 0..3 {
        ask(&mut stream, b"ping").await.unwrap();
        told.recv().await.unwrap();
    }
    assert_eq!(proxy.counts().round_trips, 3);
    // Two requests without an answer in between are one trip.
    proxy.flow(Direction::Reply, Flow::Hold);
    for _ in 0..2 {
        stream.write_all(b"more").await.unwrap();
        told.recv().await.unwrap();
    }
    proxy.heal();
    stream.read_exact(&mut [0; 8]).await.unwrap();
    assert_eq!(proxy.counts().round_trips, 4);
    // An acknowledgement of HTTP/2 asks for nothing.
    let ack = b"\0\0\x08\x06\x01\0\0\0\0 a ping ";
    stream.write_all(ack).await.unwrap();
    stream.read_exact(&mut [0; 17]).await.unwrap();
    assert_eq!(proxy.counts().round_trips, 4);
}

#[tokio::test]
async fn five_milliseconds_each_way_make_a_round_trip_of_ten() {
    let (addr, _told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    proxy.delay(Direction::Request, Duration::from_millis(5));
    proxy.delay(Direction::Reply, Duration::from_millis(5));
    let mut stream = connect(&proxy).await;
    ask(&mut stream, b"warm").await.unwrap();
    let mut trips = Vec::new();
    for _ in 0..40 {
        let start = Instant::now();
        ask(&mut stream, b"ping").await.unwrap();
        trips.push(start.elapsed());
    }
    trips.sort();
    assert!(trips[0] >= Duration::from_millis(10), "{:?}", trips[0]);
    // The quickest shows the proxy, the others show how busy the machine is.
    assert!(trips[0] < Duration::from_micros(11_500), "{:?}", trips[0]);
}

#[tokio::test]
async fn delay_is_no_limit_of_throughput() {
    let (addr, _told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    proxy.delay(Direction::Request, SHORT);
    let mut stream = connect(&proxy).await;
    let start = Instant::now();
    for _ in 0..20 {
        stream.write_all(b"ping").await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answers = [0; 80];
    stream.read_exact(&mut answers).await.unwrap();
    assert_eq!(answers, *b"ping".repeat(20));
    assert!(start.elapsed() < SHORT * 10, "{:?}", start.elapsed());
}

#[tokio::test]
async fn held_requests_arrive_after_the_repair() {
    let (addr, mut told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    let mut stream = connect(&proxy).await;
    ask(&mut stream, b"warm").await.unwrap();
    told.recv().await.unwrap();
    proxy.flow(Direction::Request, Flow::Hold);
    assert!(timeout(SHORT, ask(&mut stream, b"late")).await.is_err());
    assert!(told.is_empty());
    proxy.heal();
    assert_eq!(told.recv().await.unwrap(), b"late");
}

#[tokio::test]
async fn held_replies_arrive_after_the_repair() {
    let (addr, mut told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    proxy.flow(Direction::Reply, Flow::Hold);
    let mut stream = connect(&proxy).await;
    stream.write_all(b"ping").await.unwrap();
    // The server did it, the client does not know.
    assert_eq!(told.recv().await.unwrap(), b"ping");
    let mut answer = [0; 4];
    assert!(timeout(SHORT, stream.read(&mut answer)).await.is_err());
    proxy.heal();
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, *b"ping");
}

#[tokio::test]
async fn discarded_bytes_never_arrive_and_new_connections_heal() {
    let (addr, mut told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    let mut stream = connect(&proxy).await;
    proxy.flow(Direction::Request, Flow::Discard);
    assert!(timeout(SHORT, ask(&mut stream, b"gone")).await.is_err());
    proxy.heal();
    assert!(timeout(SHORT, ask(&mut stream, b"dead")).await.is_err());
    let mut fresh = connect(&proxy).await;
    assert_eq!(ask(&mut fresh, b"ping").await.unwrap(), *b"ping");
    assert_eq!(told.recv().await.unwrap(), b"ping");
}

#[tokio::test]
async fn resets_open_connections() {
    let (addr, _told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    let mut stream = connect(&proxy).await;
    ask(&mut stream, b"warm").await.unwrap();
    proxy.reset();
    let error = stream.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let mut fresh = connect(&proxy).await;
    ask(&mut fresh, b"ping").await.unwrap();
}

/// With several threads: before the tasks of the proxy have heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reset_and_refusal_take_effect_at_once() {
    let (addr, mut told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    for round in 0..200 {
        let mut open = timeout(PATIENCE, accepted(&proxy)).await.unwrap();
        ask(&mut open, b"warm").await.unwrap();
        assert_eq!(told.recv().await.unwrap(), b"warm");
        proxy.refuse(true);
        proxy.reset();
        let late = timeout(PATIENCE, ask(&mut open, b"late")).await.unwrap();
        assert!(late.is_err(), "round {round}: {late:?}");
        let answer = async { ask(&mut TcpStream::connect(proxy.addr()).await?, b"back").await };
        let answer = timeout(PATIENCE, answer).await.unwrap();
        assert!(answer.is_err(), "round {round}: {answer:?}");
        proxy.heal();
    }
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn refuses_and_accepts_again_on_the_same_port() {
    let (addr, _told, _echo) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    let mut open = connect(&proxy).await;
    ask(&mut open, b"warm").await.unwrap();
    proxy.refuse(true);
    // One that came while the port was being closed is reset instead.
    let refused = async {
        loop {
            match TcpStream::connect(proxy.addr()).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    timeout(PATIENCE, refused).await.unwrap();
    // Open connections live on.
    ask(&mut open, b"ping").await.unwrap();
    proxy.heal();
    let mut fresh = timeout(PATIENCE, accepted(&proxy)).await.unwrap();
    ask(&mut fresh, b"ping").await.unwrap();
}

#[tokio::test]
async fn drops_the_reply_of_the_second_request() {
    for how in [Dropped::Reset, Dropped::Silence] {
        let (addr, mut told, _echo) = echo().await;
        let proxy = Proxy::start(addr).await.unwrap();
        let mut stream = connect(&proxy).await;
        let mut seen = 0;
        proxy.drop_reply(how, move |_| {
            seen += 1;
            seen == 2
        });
        assert_eq!(ask(&mut stream, b"one.").await.unwrap(), *b"one.");
        let second = timeout(SHORT, ask(&mut stream, b"two.")).await;
        match how {
            Dropped::Reset => assert!(second.unwrap().is_err()),
            _ => assert!(second.is_err()),
        }
        assert_eq!(told.recv().await.unwrap(), b"one.");
        assert_eq!(told.recv().await.unwrap(), b"two.");
        assert_eq!(proxy.counts().dropped_replies, 1);
        let mut fresh = connect(&proxy).await;
        ask(&mut fresh, b"ping").await.unwrap();
    }
}

#[tokio::test]
async fn judge_answers_cuts_and_drops_until_the_repair() {
    let (addr, mut told, _server) = echo().await;
    let proxy = Proxy::start(addr).await.unwrap();
    proxy.judge(|request| match request {
        b"none" => Fate::Answer(b"busy".to_vec()),
        b"cut!" => Fate::Cut,
        b"lost" => Fate::Drop(Dropped::Reset),
        _ => Fate::Pass,
    });
    let mut stream = connect(&proxy).await;
    for (request, reply) in [(b"some", b"some"), (b"none", b"busy"), (b"more", b"more")] {
        assert_eq!(ask(&mut stream, request).await.unwrap(), *reply);
    }
    for request in [b"cut!", b"lost"] {
        ask(&mut connect(&proxy).await, request).await.unwrap_err();
    }
    for request in ["some", "more", "lost"] {
        assert_eq!(told.recv().await.unwrap(), request.as_bytes());
    }
    proxy.heal();
    assert_eq!(ask(&mut stream, b"none").await.unwrap(), *b"none");
}

#[tokio::test]
async fn missing_server_resets_the_client() {
    // Bound, so that no other process gets the port, but without a listener.
    let unused = TcpSocket::new_v4().unwrap();
    unused.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let server = unused.local_addr().unwrap();
    let proxy = Proxy::start(server).await.unwrap();
    let mut stream = connect(&proxy).await;
    assert!(stream.read(&mut [0; 1]).await.is_err());
}
