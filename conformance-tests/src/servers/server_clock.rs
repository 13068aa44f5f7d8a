//! The clock of a server, which a test sets as an administrator would.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::NamedTempFile;

use crate::failure::{Failure, Outcome};

/// The clock of the servers that are started below its [`words`](Self::words). The library `libfaketime` stands between
/// them and the clock of the system.
#[derive(Debug)]
pub struct ServerClock(NamedTempFile);

impl ServerClock {
    /// Why no clock can be set here.
    #[must_use]
    pub fn missing() -> Option<String> {
        let how = || "no libfaketime here; `cargo x setup` brings it".to_owned();
        library().is_none().then(how)
    }

    /// One that is ahead of that of the system by `offset`, as `+90m` or `-2`.
    ///
    /// # Errors
    /// - [`Failure`] if no file can be made for it.
    pub fn new(offset: &str) -> Outcome<Self> {
        let clock = Self(NamedTempFile::new()?);
        fs::set_permissions(clock.0.path(), fs::Permissions::from_mode(0o644))?;
        clock.set(offset)?;
        Ok(clock)
    }

    /// Sets it.
    ///
    /// # Errors
    /// - [`Failure`] if its file cannot be written.
    pub fn set(&self, offset: &str) -> Outcome {
        // Written at once: the server may read it at any moment.
        let mut file = File::options().write(true).open(self.0.path())?;
        Ok(file.write_all(format!("{offset:<8}\n").as_bytes())?)
    }

    /// The words before those that start the server.
    ///
    /// # Errors
    /// - [`Failure`] if the library is not here.
    pub fn words(&self) -> Outcome<Vec<OsString>> {
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
        Ok(words)
    }
}

fn library() -> Option<PathBuf> {
    let systems = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut paths = systems.map(|it| it.path().join("faketime/libfaketimeMT.so.1"));
    paths.find(|path| path.is_file())
}
