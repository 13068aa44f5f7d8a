//! The manual: what signatures do not say.
//!
//! | page | read it when |
//! |---|---|
//! | [`failures`] | you want to know why a lock is difficult |
//! | [`fencing`] | a write must not come from a client that has lost its lock: always |
//! | [`choosing`] | you have more than one store |
//! | [`modes`] | you need more than one holder, or more than one name |
//! | [`migrating`] | you come from compare-and-set, Redisson, Curator or `flock`, or change the store |
//! | [`when_not`] | before you add a lock |
//! | [`defaults`] | you wonder about a number |
//!
//! The examples of the pages are compiled and run.

#[doc = include_str!("../docs/failures.md")]
pub mod failures {}

#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

#[doc = include_str!("../docs/modes.md")]
pub mod modes {}

#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}

#[doc = include_str!("../docs/when_not.md")]
pub mod when_not {}

#[doc = include_str!("../docs/defaults.md")]
pub mod defaults {}
