//! A TCP proxy that breaks connections in every way that a network does.
//!
//! ```no_run
//! # async fn example(server: std::net::SocketAddr) -> std::io::Result<()> {
//! use std::time::Duration;
//! use lockkit_proxy::{Direction, Flow, Proxy};
//!
//! let proxy = Proxy::start(server).await?;
//! proxy.delay(Direction::Request, Duration::from_millis(5));
//! proxy.flow(Direction::Reply, Flow::Hold); // replies wait until the repair
//! proxy.heal();
//! # Ok(())
//! # }
//! ```

mod connection;
mod delay_queue;
mod proxy;
mod state;

pub use proxy::{Counts, Proxy};
pub use state::{Direction, Dropped, Fate, Flow, RequestFilter, RequestJudge};
