//! Members of a chat room: 64 people go in and out, before and after.
//!
//! Run it: `cargo run -p lockkit-examples --bin chat_room`
//!
//! To use a Redis server, add `-- URL`; without a URL the program starts `redis-server` itself.

use lockkit_examples::Outcome;
use lockkit_examples::cas::chat_room::ChatRoom;
use lockkit_examples::cas::crowd::compare;
use lockkit_examples::server::Server;

#[tokio::main]
async fn main() -> Outcome {
    let server = Server::at_or_own(std::env::args().nth(1)).await?;
    compare(&server, &ChatRoom::new("lobby", 64)).await
}
