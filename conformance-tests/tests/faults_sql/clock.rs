//! A database whose clock is set, as by an administrator or after a bad day of its time service.
//!
//! The library `libfaketime` stands between the server and the clock of the system. Leases promise
//! nothing over such a step; tokens and guarded transactions do.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, ensure};
use tempfile::NamedTempFile;

use crate::guarded::refused;
use crate::world::{Database, LONG, SOON, client, locks, only_rows_left};

fn library() -> Option<PathBuf> {
    let systems = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut paths = systems.map(|it| it.path().join("faketime/libfaketimeMT.so.1"));
    paths.find(|path| path.is_file())
}

/// Why no clock can be set here.
pub(crate) fn missing() -> Option<String> {
    let how = || "no libfaketime here; `cargo x setup` brings it".to_owned();
    library().is_none().then(how)
}

/// A file with the offset of the clock.
struct Clock(NamedTempFile);

impl Clock {
    fn new() -> Outcome<Self> {
        let clock = Self(NamedTempFile::new()?);
        fs::set_permissions(clock.0.path(), fs::Permissions::from_mode(0o644))?;
        clock.set("+0")?;
        Ok(clock)
    }

    fn set(&self, offset: &str) -> Outcome {
        // Written at once: the server may read it at any moment.
        let mut file = File::options().write(true).open(self.0.path())?;
        Ok(file.write_all(format!("{offset:<8}\n").as_bytes())?)
    }

    async fn server<D: Database>(&self) -> Outcome<D> {
        let library = library().ok_or_else(|| Failure::new("no libfaketime here"))?;
        let mut words: Vec<OsString> = vec!["env".into()];
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(library);
        let mut file = OsString::from("FAKETIME_TIMESTAMP_FILE=");
        file.push(self.0.path());
        words.extend([preload, file]);
        let plain = [
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "DONT_FAKE_MONOTONIC=1",
        ];
        words.extend(plain.map(OsString::from));
        D::start_below(&words).await
    }
}

pub(crate) async fn tokens_grow_when_the_clock_goes_back<D: Database>() -> Outcome {
    let clock = Clock::new()?;
    let server: D = clock.server().await?;
    for way in crate::world::WAYS {
        let of = locks(&server, way, LONG, 2).await?;
        let mut last = None;
        for offset in ["+0", "-90m", "-3d", "+0"] {
            clock.set(offset)?;
            // Often enough in a row for every fast path.
            for lock in of.iter().cycle().take(12) {
                let guard = within(SOON, lock.acquire()).await??;
                let token = Some(guard.token());
                ensure(
                    token > last,
                    format!("{token:?} after {last:?} at {offset}"),
                )?;
                last = token;
                guard.release().await?;
            }
        }
    }
    only_rows_left(&server).await
}

pub(crate) async fn clock_that_jumps_ahead_fences_the_holder<D: Database>() -> Outcome {
    let clock = Clock::new()?;
    let server: D = clock.server().await?;
    let pool = server.pool(2).await?;
    let (mine, other) = (
        client(&server, "lease", Duration::from_secs(9)).await?,
        client(&server, "lease", LONG).await?,
    );
    let guard = mine.lock("jobs")?.acquire().await?;
    let waiter = acquire(&other.lock("jobs")?);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let loss = loss_of(guard);
    clock.set("+2h")?;
    // A lease counts by that clock; its holder loses it with its next renewal.
    let next = within(SOON, waiter.soon()).await???;
    let (_, _, guard) = within(SOON, loss.soon()).await??;
    ensure(next.token() > guard.token(), "the token has not grown")?;
    refused::<D>(&mine, &guard, pool.begin().await?).await?;
    next.release().await?;
    only_rows_left(&server).await
}
