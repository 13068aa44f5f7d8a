//! The client of a store: what users touch, and what works for them in the background.

mod acquire;
mod attempt;
pub(crate) mod builder;
pub(crate) mod guard;
pub(crate) mod handle;
mod hold;
mod keeper;
pub(crate) mod lock;
pub(crate) mod owner;
mod queue;
mod reaper;
mod release;
mod runtime;
mod scope;
mod shared;
mod try_acquire;
mod wait;
