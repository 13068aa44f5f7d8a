//! Programs that use lockkit. Each file of `src/bin/` begins with the command that runs it:
//!
//! | program | what it shows |
//! |---|---|
//! | `quick_start` | take a lock, work, give it back |
//! | `swap_store` | the same code on another store: only the URL changes |
//! | `fencing` | a resource that refuses a writer that has lost its lock |
//! | `reentrant` | functions that call each other and all take the lock |
//! | `singleton` | a task that runs in one of several processes |
//! | `readers` | many readers, and a reload that holds alone |
//! | `permits` | at most four at the same time |
//! | `leader` | a leader that is replaced when its process is killed |
//! | `transfer` | two locks held together |
//! | `orders` | a web service with a lock for each order |
//! | `losing` | how to test your own code against lost locks, without a server |
//! | `chat_room`, `session`, `stock` | WATCH, MULTI and EXEC replaced by a lock, in [`cas`] |
//! | `cas_table` | measures those three, before and after |
//!
//! A job of `cron` needs no program: `examples/nightly.sh` is a job that never runs twice at once.

pub mod cas;
pub mod server;

/// Any error of an example.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// The result of an example.
pub type Outcome<T = ()> = Result<T, Failure>;
