//! Where it was measured.

use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

/// The machine and the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Machine {
    /// When the run began: seconds since 1970.
    pub began: u64,
    /// The version of this library.
    pub lockkit: String,
    /// Whether the program is optimised. Figures of one that is not mean nothing.
    pub optimised: bool,
    /// The processor.
    pub processor: String,
    /// How many of its cores this program may use.
    pub cores: usize,
    /// The memory, in bytes.
    pub memory: Option<u64>,
    /// The operating system.
    pub system: String,
    /// How many processes wanted to run in the minute before.
    pub load_before: Option<f64>,
    /// How many in the last minute of the run, this program among them.
    pub load_after: Option<f64>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        Self {
            began: now(),
            lockkit: env!("CARGO_PKG_VERSION").into(),
            optimised: !cfg!(debug_assertions),
            processor: line_of("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory: line_of("/proc/meminfo", "MemTotal").and_then(|text| {
                let kilobytes: u64 = text.split_whitespace().next()?.parse().ok()?;
                Some(kilobytes * 1024)
            }),
            system: system(),
            load_before: load(),
            load_after: None,
        }
    }

    /// A warning, if other programs used the machine before the run.
    pub(crate) fn busy(&self) -> Option<String> {
        let load = self.load_before?;
        let cores = u32::try_from(self.cores.max(1)).map_or(1.0, f64::from);
        // What a machine does that has nothing to do is less.
        (load > cores / 4.0).then(|| {
            format!(
                "Other programs were running: the load was {load:.1} before the run, on {} cores. Times \
                 are longer than on an idle machine, and ratios vary more.",
                self.cores
            )
        })
    }
}

fn unknown() -> String {
    "unknown".into()
}

#[expect(
    clippy::disallowed_methods,
    reason = "it only dates the report, and decides nothing"
)]
fn now() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn system() -> String {
    let release = read_to_string("/proc/sys/kernel/osrelease");
    let release = release.map_or_else(|_| unknown(), |text| text.trim().to_owned());
    format!("{} {release}", std::env::consts::OS)
}

/// The load of the last minute.
pub(crate) fn load() -> Option<f64> {
    let text = read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The text after the colon of the first line with this key.
fn line_of(path: &str, key: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A day as people write it, from seconds since 1970, in UTC: `2026-03-09 14:05`.
pub(crate) fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last one.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}",
        rest / 3600,
        rest / 60 % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_772_323_199, "2026-02-28 23:59"),
            (1_772_323_200, "2026-03-01 00:00"),
            (4_102_444_800, "2100-01-01 00:00"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }
}
