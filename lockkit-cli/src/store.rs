//! Which store, and how to reach it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lockkit::file::FileStore;
use lockkit::url::StoreUrl;
use lockkit::{Error, Lease, LockClient};
use tokio::runtime::{Builder, Runtime};

use crate::args::StoreArgs;
use crate::exit::{Code, Failure};
use crate::render::plain;

/// The variable that names a file with the URL in it.
const URL_FILE: &str = "LOCKKIT_URL_FILE";

/// A runtime whose tasks go on while the main thread does something else.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(Code::System, &error))
}

/// Which store: that of a URL, or the embedded one in its directory.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    Url(String),
    Embedded(PathBuf),
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreOptions {
    /// Makes the directory, file or table that is missing.
    pub(crate) creates: bool,
    /// The lease of holds, and of the session where the store has one.
    pub(crate) ttl: Option<Duration>,
    /// How long a store that cannot be reached is tried again; `None` for the `outage` of its URL.
    pub(crate) patience: Option<Duration>,
}

impl Location {
    /// The store of `--url`, of the environment, or the embedded one.
    pub(crate) fn of(args: &StoreArgs) -> Result<Self, Failure> {
        if let Some(url) = &args.url {
            return Self::named(url, "--url or LOCKKIT_URL");
        }
        let Some(file) = std::env::var_os(URL_FILE) else {
            return state_dir().map(Self::Embedded);
        };
        let url = std::fs::read_to_string(&file).map_err(|error| {
            let text = format!("cannot read the file that {URL_FILE} names: {error}");
            Failure::new(Code::Usage, text)
        })?;
        Self::named(url.trim(), "the file that LOCKKIT_URL_FILE names")
    }

    /// An empty URL is most often that of a variable that is not set, and must not lead elsewhere.
    fn named(url: &str, from: &str) -> Result<Self, Failure> {
        if url.is_empty() {
            let text = format!("the URL of the store is empty ({from})");
            return Err(Failure::new(Code::Usage, text));
        }
        Ok(Self::Url(url.to_owned()))
    }

    /// The store in words, without secrets.
    pub(crate) fn label(&self) -> String {
        let absolute = |path: &str| std::path::absolute(path).unwrap_or_else(|_| path.into());
        match self {
            Self::Embedded(dir) => plain(format_args!("file:{}", dir.display())),
            Self::Url(url) => match url.parse::<StoreUrl>() {
                Ok(url) if is_local(&url) => {
                    let path = absolute(url.path());
                    plain(format_args!("{}:{}", url.scheme(), path.display()))
                }
                Ok(url) => {
                    let text = url.to_string();
                    plain(text.split('?').next().unwrap_or_default())
                }
                // Opening it says why.
                Err(_) => "?".to_owned(),
            },
        }
    }

    /// Opens the store, and tries again while it cannot be reached.
    pub(crate) async fn open(&self, options: StoreOptions) -> Result<LockClient, Failure> {
        self.check(options)?;
        let client = self.connect(options).await;
        client.map_err(|error| failure(&error))
    }

    async fn connect(&self, options: StoreOptions) -> lockkit::Result<LockClient> {
        let lease = options.ttl.map(Lease::renewed);
        match self {
            Self::Url(url) => {
                let url = if options.creates {
                    url.clone()
                } else {
                    unchanged(url)
                };
                let mut builder = lockkit::builder(url);
                if let Some(patience) = options.patience {
                    builder = builder.wait(patience);
                }
                if let Some(lease) = lease {
                    builder = builder.lease(lease);
                }
                builder.connect().await
            }
            Self::Embedded(dir) => {
                let mut builder = LockClient::builder(FileStore::new(dir)?);
                if let Some(lease) = lease {
                    builder = builder.lease(lease);
                }
                builder.build()
            }
        }
    }

    /// Looks at the path of a store of this machine.
    fn check(&self, options: StoreOptions) -> Result<(), Failure> {
        let (path, is_directory) = match self {
            Self::Embedded(dir) => (dir.clone(), true),
            Self::Url(url) => match url.parse::<StoreUrl>() {
                Ok(url) if is_local(&url) => (url.path().into(), url.scheme() == "file"),
                _ => return Ok(()),
            },
        };
        let shown = plain(path.display());
        if path.starts_with("~") {
            let text = format!("`{shown}`: no shell expands the `~` here; write the whole path");
            return Err(Failure::new(Code::Usage, text));
        }
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() != is_directory => {
                let kind = if is_directory { "directory" } else { "file" };
                let text = format!("`{shown}` is not a {kind}");
                Err(Failure::new(Code::Usage, text))
            }
            Err(_) if !options.creates => {
                let text = format!("`{shown}` is not there: nobody has locked anything in it yet");
                Err(Failure::new(Code::Unavailable, text))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the store is a path of this machine.
fn is_local(url: &StoreUrl) -> bool {
    matches!(url.scheme(), "file" | "sqlite")
}

/// The URL with which nothing is made that is missing.
fn unchanged(text: &str) -> String {
    let Ok(url) = text.parse::<StoreUrl>() else {
        return text.to_owned();
    };
    let tables = ["postgres", "postgresql", "mysql", "mariadb", "sqlite"];
    if !tables.contains(&url.scheme()) {
        return text.to_owned();
    }
    let options: Vec<_> = url.options.names().collect();
    match options.as_slice() {
        [] => format!("{}?schema=check", text.trim_end_matches('?')),
        names if names.contains(&"schema") => text.replace("schema=create", "schema=check"),
        _ => format!("{text}&schema=check"),
    }
}

/// Opens the store of the arguments for a look or for an operator: nothing is made that is missing,
/// and nothing is tried again.
pub(crate) async fn look(args: &StoreArgs) -> Result<(LockClient, Location), Failure> {
    let location = Location::of(args)?;
    let once = StoreOptions {
        patience: Some(Duration::ZERO),
        ..StoreOptions::default()
    };
    let client = location.open(once).await?;
    Ok((client, location))
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
    location(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"), root).ok_or_else(|| {
        Failure::new(
            Code::Usage,
            "no place for lock files: neither HOME nor XDG_STATE_HOME is set; give --url or set LOCKKIT_URL",
        )
    })
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
    fn a_look_asks_for_no_table_to_be_made() {
        for (url, asked) in [
            ("postgres://h/db", "postgres://h/db?schema=check"),
            ("mysql://h/db?ttl=5s", "mysql://h/db?ttl=5s&schema=check"),
            ("sqlite:a.db?schema=create", "sqlite:a.db?schema=check"),
            ("redis://h", "redis://h"),
        ] {
            assert_eq!(unchanged(url), asked);
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
        let label = |url: &str| Location::Url(url.to_owned()).label();
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
