//! Which store, and how to reach it.

use std::ffi::OsString;
use std::path::PathBuf;

use lockkit::file::FileStore;
use lockkit::{Error, LockClient};
use tokio::runtime::{Builder, Runtime};

use crate::args::StoreArgs;
use crate::exit::{Code, Failure};

/// A runtime whose tasks go on while the main thread does something else.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(Code::System, &error))
}

/// Connects to the store of the arguments, of the environment, or the embedded one.
pub(crate) async fn connect(args: &StoreArgs) -> Result<LockClient, Failure> {
    let client = match args.url.as_deref() {
        Some(url) if !url.is_empty() => lockkit::connect(url).await,
        _ => embedded()?,
    };
    client.map_err(|error| failure(&error))
}

/// The store in files of this user.
fn embedded() -> Result<lockkit::Result<LockClient>, Failure> {
    let dir = state_dir()?;
    Ok(FileStore::new(dir)
        .map_err(Error::from)
        .and_then(LockClient::new))
}

/// A failure of the library, with the exit code that says what to do about it.
pub(crate) fn failure(error: &Error) -> Failure {
    let code = match error {
        Error::Timeout { .. } => Code::NotAcquired,
        Error::Lost { .. } => Code::Lost,
        Error::Backend(_) => Code::Unavailable,
        Error::Shutdown | Error::NoRuntime => Code::Software,
        _ => Code::Usage,
    };
    Failure::from_error(code, error)
}

/// Where the embedded store keeps its files, for this process.
fn state_dir() -> Result<PathBuf, Failure> {
    let root = rustix::process::geteuid().is_root();
    place(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"), root).ok_or_else(|| {
        Failure::new(
            Code::Usage,
            "no place for lock files: neither HOME nor XDG_STATE_HOME is set; give --url or set LOCKKIT_URL",
        )
    })
}

/// `$XDG_STATE_HOME/lockkit`, else `~/.local/state/lockkit`, else `/var/lib/lockkit` for root.
///
/// A path that is not absolute counts as none, for it would name another store in each directory.
fn place(state: Option<OsString>, home: Option<OsString>, root: bool) -> Option<PathBuf> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(state)
        .or_else(|| absolute(home).map(|home| home.join(".local/state")))
        .or_else(|| root.then(|| PathBuf::from("/var/lib")))
        .map(|place| place.join("lockkit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_store_has_one_place() {
        let some = |path: &str| Some(OsString::from(path));
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(place(some("/s"), some("/h"), true), path("/s/lockkit"));
        assert_eq!(
            place(some("s"), some("/h"), true),
            path("/h/.local/state/lockkit")
        );
        assert_eq!(
            place(None, some("/h"), false),
            path("/h/.local/state/lockkit")
        );
        assert_eq!(place(None, some(""), true), path("/var/lib/lockkit"));
        assert_eq!(place(None, None, false), None);
    }
}
