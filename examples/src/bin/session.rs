//! The fields of a session that depend on each other, changed by 64 requests at once, before and after.
//!
//! Run it: `cargo run -p lockkit-examples --bin session`
//!
//! To use a Redis server, add `-- URL`; without a URL the program starts `redis-server` itself.

use lockkit_examples::Outcome;
use lockkit_examples::cas::crowd::compare;
use lockkit_examples::cas::session::Session;
use lockkit_examples::server::Server;

#[tokio::main]
async fn main() -> Outcome {
    let server = Server::at_or_own(std::env::args().nth(1)).await?;
    compare(&server, &Session::new("42")).await
}
