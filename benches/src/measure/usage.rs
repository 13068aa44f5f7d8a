//! What this process uses.

use std::time::Duration;

use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

use crate::failure::{Failure, Outcome};

/// The processor time of all threads so far.
pub(crate) fn processor() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The bytes of memory that are in use.
pub(crate) fn resident() -> Outcome<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split_whitespace().nth(1);
    let pages = pages.ok_or_else(|| Failure::new("the system does not report the memory used"))?;
    Ok(pages.parse::<usize>()? * page_size())
}

/// Raises the limit of open files as far as possible, and returns it.
pub(crate) fn handles() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    // Where that is refused, it stays as it was.
    let now = setrlimit(Resource::Nofile, limit).map_or(before, |()| limit.current);
    now.map_or(usize::MAX, |now| usize::try_from(now).unwrap_or(usize::MAX))
}
