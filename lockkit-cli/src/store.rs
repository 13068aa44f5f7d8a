//! Which store, and how to reach it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkit::file::FileStore;
use lockkit::url::StoreUrl;
use lockkit::{Lease, LockClient};
use tokio::runtime::{Builder, Runtime};

use crate::exit::{Code, Failure};
use crate::render::plain;

/// The variable that names a file with the URL in it.
const URL_FILE: &str = "LOCKKIT_URL_FILE";

/// A runtime whose tasks run while the main thread does something else.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    Ok(builder.worker_threads(1).enable_all().build()?)
}

/// Which store: that of a URL, or the embedded one in its directory.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    Url { url: StoreUrl, text: String },
    Embedded(PathBuf),
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreOptions {
    /// Creates a missing directory, file or table.
    pub(crate) creates: bool,
    /// The lease of holds, and of the session where the store has one.
    pub(crate) ttl: Option<Duration>,
    /// How long a store that cannot be reached is tried again; `None` for the `outage` of its URL.
    pub(crate) patience: Option<Duration>,
}

impl Location {
    /// The store of `--url`, of the environment, or the embedded one.
    pub(crate) fn of(url: Option<&str>) -> Result<Self, Failure> {
        if let Some(url) = url {
            return Self::named(url, "--url or LOCKKIT_URL");
        }
        let Some(file) = std::env::var_os(URL_FILE) else {
            return state_dir().map(Self::Embedded);
        };
        let url = std::fs::read_to_string(&file).map_err(|error| {
            let text = format!("cannot read the file that {URL_FILE} names: {error}");
            Failure::usage(text)
        })?;
        Self::named(url.trim(), "the file that LOCKKIT_URL_FILE names")
    }

    /// An empty URL is most often that of a variable that is not set, and must not lead elsewhere.
    fn named(text: &str, from: &str) -> Result<Self, Failure> {
        if text.is_empty() {
            let text = format!("the URL of the store is empty; set it in {from}, or set none");
            return Err(Failure::usage(text));
        }
        Ok(Self::Url {
            url: text.parse()?,
            text: text.to_owned(),
        })
    }

    /// The store in words, without secrets.
    pub(crate) fn label(&self) -> String {
        let local = |scheme, path: &Path| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
            format!("{scheme}:{}", path.display())
        };
        let text = match self {
            Self::Embedded(dir) => local("file", dir),
            Self::Url { url, .. } if matches!(url.scheme(), "file" | "sqlite") => {
                local(url.scheme(), Path::new(url.path()))
            }
            Self::Url { url, .. } => {
                let text = url.to_string();
                text.split('?').next().unwrap_or_default().to_owned()
            }
        };
        plain(text)
    }

    /// Opens the store, and tries again while it cannot be reached.
    pub(crate) async fn open(&self, options: StoreOptions) -> Result<LockClient, Failure> {
        self.check(options)?;
        let lease = options.ttl.map(Lease::renewed);
        Ok(match self {
            Self::Url { url, text } => {
                let mut builder = if options.creates {
                    lockkit::builder(text)
                } else {
                    lockkit::builder(unchanged(url, text))
                };
                if let Some(patience) = options.patience {
                    builder = builder.wait(patience);
                }
                if let Some(lease) = lease {
                    builder = builder.lease(lease);
                }
                builder.connect().await?
            }
            Self::Embedded(dir) => {
                let mut builder = LockClient::builder(FileStore::new(dir)?);
                if let Some(lease) = lease {
                    builder = builder.lease(lease);
                }
                builder.build()?
            }
        })
    }

    /// Checks the path of a store of this machine.
    fn check(&self, options: StoreOptions) -> Result<(), Failure> {
        let (path, kind) = match self {
            Self::Embedded(dir) => (dir.as_path(), "directory"),
            Self::Url { url, .. } if url.scheme() == "file" => (Path::new(url.path()), "directory"),
            Self::Url { url, .. } if url.scheme() == "sqlite" => (Path::new(url.path()), "file"),
            Self::Url { .. } => return Ok(()),
        };
        let shown = plain(path.display());
        if path.starts_with("~") {
            let text = format!(
                "`{shown}` begins with `~`, which no shell expands here; give the full path"
            );
            return Err(Failure::usage(text));
        }
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() != (kind == "directory") => {
                let text = format!("`{shown}` is not a {kind}; give the path of a {kind}");
                Err(Failure::usage(text))
            }
            Err(_) if !options.creates => {
                let text = format!("`{shown}` does not exist; `lockkit run` creates it");
                Err(Failure::new(Code::UNAVAILABLE, text))
            }
            _ => Ok(()),
        }
    }
}

/// The URL with which the store creates no missing table.
fn unchanged(url: &StoreUrl, text: &str) -> String {
    let tables = ["postgres", "postgresql", "mysql", "mariadb", "sqlite"];
    let names: Vec<_> = url.options.names().collect();
    if !tables.contains(&url.scheme()) {
        text.to_owned()
    } else if names.is_empty() {
        format!("{}?schema=check", text.trim_end_matches('?'))
    } else if names.contains(&"schema") {
        text.replace("schema=create", "schema=check")
    } else {
        format!("{text}&schema=check")
    }
}

/// Opens a store to read it, or for an operator: creates nothing, and tries once. Also returns the store
/// in words.
pub(crate) async fn look(url: Option<&str>) -> Result<(LockClient, String), Failure> {
    let location = Location::of(url)?;
    let once = StoreOptions {
        patience: Some(Duration::ZERO),
        ..StoreOptions::default()
    };
    Ok((location.open(once).await?, location.label()))
}

/// Whether a URL has a password in it, or may have.
pub(crate) fn has_password(url: &str) -> bool {
    match url.parse::<StoreUrl>() {
        Ok(url) => {
            url.password().is_some() || url.options.names().any(|name| name.contains("pass"))
        }
        Err(_) => true,
    }
}

/// Where the embedded store keeps its files, for this process.
fn state_dir() -> Result<PathBuf, Failure> {
    let root = rustix::process::geteuid().is_root();
    let [state, home] = ["XDG_STATE_HOME", "HOME"].map(std::env::var_os);
    let none = "neither HOME nor XDG_STATE_HOME names a place for lock files; give --url or set LOCKKIT_URL";
    location(state, home, root).ok_or_else(|| Failure::usage(none))
}

/// `$XDG_STATE_HOME/lockkit`, else `~/.local/state/lockkit`, else `/var/lib/lockkit` for root.
///
/// A path that is not absolute counts as none, for it would name another store in each directory.
fn location(state: Option<OsString>, home: Option<OsString>, root: bool) -> Option<PathBuf> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(state)
        .or_else(|| absolute(home).map(|home| home.join(".local/state")))
        .or_else(|| root.then(|| PathBuf::from("/var/lib")))
        .map(|location| location.join("lockkit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_creates_no_table() {
        for (url, asked) in [
            ("postgres://h/db", "postgres://h/db?schema=check"),
            ("mysql://h/db?ttl=5s", "mysql://h/db?ttl=5s&schema=check"),
            ("sqlite:a.db?schema=create", "sqlite:a.db?schema=check"),
            ("redis://h", "redis://h"),
        ] {
            assert_eq!(unchanged(&url.parse().unwrap(), url), asked);
        }
    }

    #[test]
    fn passwords_are_found() {
        assert!(has_password("redis://:s3cret@h/"));
        assert!(has_password("postgres://h/?sslpassword=x"));
        assert!(has_password("not a url"));
        assert!(!has_password("redis://me@h/"));
    }

    #[test]
    fn a_label_has_no_secrets() {
        let label = |url: &str| Location::of(Some(url)).unwrap().label();
        assert_eq!(
            label("redis://me:s3cret@h:1/0?prefix=x"),
            "redis://***@h:1/0"
        );
        assert_eq!(
            label("file:/var/lib/locks?poll=1ms..2ms"),
            "file:/var/lib/locks"
        );
    }

    #[test]
    fn the_embedded_store_has_one_place() {
        let some = |path: &str| Some(OsString::from(path));
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(location(some("/s"), some("/h"), true), path("/s/lockkit"));
        assert_eq!(
            location(some("s"), some("/h"), true),
            path("/h/.local/state/lockkit")
        );
        assert_eq!(
            location(None, some("/h"), false),
            path("/h/.local/state/lockkit")
        );
        assert_eq!(location(None, some(""), true), path("/var/lib/lockkit"));
        assert_eq!(location(None, None, false), None);
    }
}
