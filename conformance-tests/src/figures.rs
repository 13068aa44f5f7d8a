//! Bounds of measured figures, the median of several times, processor time, and a slow link to a server.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::failure::{Failure, Outcome};
use crate::proxy::Proxy;
use crate::servers::ServerProcess;

/// Whether the compiler optimised. Without, our side of a ratio costs several times as much and says
/// little of what a program sees: it is measured for a shorter time, too.
pub const OPTIMISED: bool = !cfg!(debug_assertions);

/// A bound of processor time: as it is with optimisation, or wide.
#[must_use]
pub const fn bound(optimised: f64, otherwise: f64) -> f64 {
    if OPTIMISED { optimised } else { otherwise }
}

/// The delay of a link to a distant server, in each direction.
pub const DELAY: Duration = Duration::from_millis(5);

/// A link with that delay to a server on this machine.
///
/// # Errors
/// - [`Failure`] if there is no port for it.
pub async fn slow_link(port: u16) -> Outcome<Proxy> {
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

/// The part of a core that a server uses in the next `span`.
///
/// # Errors
/// - [`Failure`] if it does not run, or the system does not tell.
pub async fn share_of_a_core(server: &ServerProcess, span: Duration) -> Outcome<f64> {
    let pid = server.pid().map(|pid| pid.to_string());
    let pid = pid.ok_or_else(|| Failure::new("the server has no process"))?;
    let (before, start) = (processor_time(&pid)?, Instant::now());
    sleep(span).await;
    Ok(ratio(processor_time(&pid)? - before, start.elapsed()))
}

/// The processor time that a process has used so far. `process` is its number, or `self`.
///
/// # Errors
/// - [`Failure`] if the system does not tell.
pub fn processor_time(process: &str) -> Outcome<Duration> {
    /// The unit of times in `/proc`, in every build of Linux that is in use.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in brackets may contain anything. After it come the state and numbers; the 12th and the
    // 13th are ticks in user mode and in the kernel.
    let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let ticks = numbers.split_whitespace().skip(11).take(2).map(str::parse);
    let ticks: Vec<u32> = ticks.collect::<Result<_, _>>()?;
    Ok(TICK * ticks.iter().sum())
}
