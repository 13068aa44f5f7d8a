//! Members of a chat room: 64 people go in and out, before and after.
//!
//! Run it: `cargo run -p lockkit-examples --bin chat_room`
//!
//! A URL of a Redis server may follow, behind `--`; without one it starts `redis-server` for itself.

#![expect(clippy::print_stdout, reason = "it is for people")]

use lockkit_examples::Outcome;
use lockkit_examples::cas::Case;
use lockkit_examples::cas::chat_room::ChatRoom;
use lockkit_examples::cas::crowd::{Until, Way, run};
use lockkit_examples::server::Server;

#[tokio::main]
async fn main() -> Outcome {
    let server = Server::at_or_own(std::env::args().nth(1)).await?;
    let case = ChatRoom::new("lobby", 64);
    let mut states = Vec::new();
    for way in [Way::Watched, Way::Locked] {
        let seen = run(&server, &case, way, 64, Until::Turns(3)).await?;
        println!(
            "{way:?}: {} updates by 64 contenders, begun again {} times, the slowest of a hundred took {:?}",
            seen.done, seen.retries, seen.p99
        );
        states.push(case.state(&mut server.connect().await?).await?);
    }
    assert_eq!(states[0], states[1], "both ways end in the same state");
    println!("both end with: {}", states[0][..64].join(", "));
    Ok(())
}
