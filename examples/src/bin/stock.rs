//! Stock that must never be oversold: 64 buyers want 192 of 100 pieces, before and after.
//!
//! Run it: `cargo run -p lockkit-examples --bin stock`
//!
//! To use a Redis server, add `-- URL`; without a URL the program starts `redis-server` itself.

use lockkit_examples::Outcome;
use lockkit_examples::cas::crowd::compare;
use lockkit_examples::cas::stock::Stock;
use lockkit_examples::server::Server;

#[tokio::main]
async fn main() -> Outcome {
    let server = Server::at_or_own(std::env::args().nth(1)).await?;
    compare(&server, &Stock::new("teapot", 100)).await
}
