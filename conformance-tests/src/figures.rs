//! What figures of speed are held against, how they come from several times, and the slow way on which
//! some are taken.

use std::time::Duration;

use crate::failure::{Failure, Outcome};
use crate::proxy::Proxy;

/// Whether the compiler optimised. Without, our side of a ratio costs several times as much and says
/// little of what a program sees: it is measured for a shorter time, too.
pub const OPTIMISED: bool = !cfg!(debug_assertions);

/// A bound of processor time: as it is with optimisation, or wide.
#[must_use]
pub const fn bound(optimised: f64, otherwise: f64) -> f64 {
    if OPTIMISED { optimised } else { otherwise }
}

/// The way to a server that is far away, and the way back.
pub const DELAY: Duration = Duration::from_millis(5);

/// A way of that length to a server of this machine.
///
/// # Errors
/// - [`Failure`] if there is no port for it.
pub async fn slow_way(port: u16) -> Outcome<Proxy> {
    let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await?;
    proxy.delay_both(DELAY);
    Ok(proxy)
}

/// So many rounds of something, or a fifth of them without optimisation.
#[must_use]
pub const fn rounds(optimised: u32) -> u32 {
    if OPTIMISED {
        optimised
    } else {
        optimised.div_ceil(5)
    }
}

/// The one in the middle.
///
/// # Errors
/// There is none.
pub fn median(times: Vec<Duration>) -> Outcome<Duration> {
    quantile(times, 2)
}

/// The quickest quarter ends here: what else the machine does delays some of them.
///
/// # Errors
/// There is none.
pub fn first_quarter(times: Vec<Duration>) -> Outcome<Duration> {
    quantile(times, 4)
}

fn quantile(mut times: Vec<Duration>, parts: usize) -> Outcome<Duration> {
    times.sort_unstable();
    let found = times.get(times.len() / parts).copied();
    found.ok_or_else(|| Failure::new("nothing was measured"))
}

/// How often the second fits into the first.
#[must_use]
pub fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
