//! The same code on any store: the URL is all that changes.
//!
//! Run it: `cargo run -p lockkit-examples --bin swap_store -- memory: file:/tmp/lockkit-example`
//!
//! `redis://127.0.0.1` would do as well.
#![expect(clippy::print_stdout, reason = "it is for people")]

use lockkit_examples::Outcome;

#[tokio::main]
async fn main() -> Outcome {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    assert!(!urls.is_empty(), "give one URL or more");
    for url in urls {
        let client = lockkit::connect(&url).await?;
        let (mut last, lock) = (None, client.lock("nightly")?);
        for _ in 0..3 {
            let token = lock.scope(async |guard| guard.token()).await?;
            assert!(Some(token) > last, "tokens grow, in every store");
            last = Some(token);
        }
        let can = client.backend().capabilities();
        println!(
            "{}: waiters {:?}, {:?}",
            client.backend().backend(),
            can.queueing,
            can.waiting
        );
    }
    Ok(())
}
