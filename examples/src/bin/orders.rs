//! A web service with a lock for each order: two requests for one order never work at the same time,
//! and requests for different orders never wait for each other.
//!
//! Run it: `cargo run -p lockkit-examples --bin orders -- --once`
//!
//! Without `--once` it serves until it is interrupted: `curl -X POST localhost:3000/orders/42/pay`.
//! `LOCKKIT_URL` says where the locks are; without it they are in the process.
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use lockkit::{Error, LockClient};
use lockkit_examples::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

/// The longest time that a request waits.
const PATIENCE: Duration = Duration::from_secs(3);

async fn pay(
    State(locks): State<LockClient>,
    Path(order): Path<u64>,
) -> Result<String, (StatusCode, String)> {
    let failed = |status, error: &dyn std::error::Error| (status, format!("{error}\n"));
    let lock = locks.lock(format!("orders/{order}"));
    let lock = lock.map_err(|error| failed(StatusCode::BAD_REQUEST, &error))?;
    let guard = match lock.acquire_timeout(PATIENCE).await {
        Ok(guard) => guard,
        // Other requests held it all the time.
        Err(error @ Error::Timeout { .. }) => return Err(failed(StatusCode::CONFLICT, &error)),
        Err(error) => return Err(failed(StatusCode::SERVICE_UNAVAILABLE, &error)),
    };
    // If the caller disconnects, this future is dropped, and the guard with it. If the hold is lost, the
    // work is dropped. The database gets the token.
    let paid = guard.protect(charge(order, guard.token().get())).await;
    let paid = paid.map_err(|error| failed(StatusCode::SERVICE_UNAVAILABLE, &error))?;
    // The order is paid even if the release fails: then the lease ends the hold.
    drop(guard);
    Ok(paid)
}

async fn charge(order: u64, token: u64) -> String {
    tokio::time::sleep(Duration::from_millis(50)).await;
    format!("order {order} is paid under token {token}\n")
}

#[tokio::main]
async fn main() -> Outcome {
    let once = std::env::args().any(|argument| argument == "--once");
    let url = std::env::var("LOCKKIT_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = lockkit::connect(url).await?;
    let service = Router::new()
        .route("/orders/{order}/pay", post(pay))
        .with_state(locks.clone());
    let port = if once { 0 } else { 3000 };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    println!("serves at {address}");
    let (done, ended) = tokio::sync::oneshot::channel::<()>();
    // What Docker, Kubernetes and systemd send; Ctrl-C is SIGINT.
    let mut terminate = signal(SignalKind::terminate())?;
    let served = axum::serve(listener, service).with_graceful_shutdown(async move {
        tokio::select! {
            _ = ended => {}
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    });
    if once {
        let (served, asked) = tokio::join!(served.into_future(), ask_both(address, done));
        served?;
        asked?;
    } else {
        served.await?;
    }
    // What was dropped is released before the process ends.
    Ok(locks.shutdown(PATIENCE).await?)
}

/// Two requests for one order at once: both are served, one after the other.
async fn ask_both(
    address: std::net::SocketAddr,
    done: tokio::sync::oneshot::Sender<()>,
) -> Outcome {
    let (one, other) = tokio::try_join!(ask(address), ask(address))?;
    print!("{one}{other}");
    assert_ne!(one, other, "two holds have two tokens");
    // The service may have ended by itself.
    let _ = done.send(());
    Ok(())
}

/// `curl -X POST`, by hand.
async fn ask(address: std::net::SocketAddr) -> Outcome<String> {
    let mut socket = TcpStream::connect(address).await?;
    let request = "POST /orders/42/pay HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    socket.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("no response")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{response}");
    Ok(body.to_owned())
}
