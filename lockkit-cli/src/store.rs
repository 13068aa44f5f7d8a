//! Which store, and how to reach it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkit::url::{StoreUrl, parse_duration};
use lockkit::{Connect, Error, LockClient};
use tokio::runtime::{Builder, Runtime};

use crate::exit::{Code, Failure};
use crate::output::say;
use crate::render::plain;

/// The variable that names a file with the URL in it.
const URL_FILE: &str = "LOCKKIT_URL_FILE";

/// Does something on a runtime whose tasks run while the main thread does something else. The runtime ends at once: a
/// name server that does not respond does not delay the end of the command.
pub(crate) fn on_runtime<T>(
    work: impl FnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    let done = work(&runtime);
    runtime.shutdown_background();
    done
}

/// Which store: its URL, parsed and as it was given.
pub(crate) struct Location {
    pub(crate) url: StoreUrl,
    text: String,
    /// No URL was given: the store is the directory of lock files of this user.
    pub(crate) embedded: bool,
}

impl Location {
    /// The store of `--url`, of the environment, or the embedded one.
    pub(crate) fn of(url: Option<&str>) -> Result<Self, Failure> {
        if let Some(url) = url {
            return Self::named(url, "--url or LOCKKIT_URL");
        }
        let Some(file) = std::env::var_os(URL_FILE) else {
            // With `//`, so that the path may begin with more than one `/`.
            let text = format!("file://{}", escaped(&state_dir()?));
            return Ok(Self {
                embedded: true,
                ..Self::named(&text, "")?
            });
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
            let text =
                format!("the URL of the store is empty; give one in {from}, or give none at all");
            return Err(Failure::usage(text));
        }
        Ok(Self {
            url: text.parse().map_err(Error::InvalidUrl)?,
            text: text.to_owned(),
            embedded: false,
        })
    }

    /// Says where the locks are, if no URL was given.
    pub(crate) fn say_if_embedded(&self) {
        if self.embedded {
            let dir = plain(self.url.path());
            say(format_args!(
                "the locks are files in `{dir}`: they exclude programs on this host only"
            ));
        }
    }

    /// The store in words, without secrets.
    pub(crate) fn in_words(&self) -> String {
        let scheme = self.url.scheme();
        if matches!(scheme, "file" | "sqlite") {
            let path = Path::new(self.url.path());
            let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
            return plain(format_args!("{scheme}:{}", path.display()));
        }
        let text = self.url.to_string();
        plain(text.split('?').next().unwrap_or_default())
    }

    /// Prepares to open the store. `creates` says whether a missing directory, file or table is created.
    pub(crate) fn builder(&self, creates: bool) -> Result<Connect, Failure> {
        let kind = match self.url.scheme() {
            "file" => "directory",
            "sqlite" => "file",
            _ => return Ok(lockkit::builder(self.text(creates))),
        };
        let path = Path::new(self.url.path());
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
            Err(_) if !creates => {
                let text = format!("`{shown}` does not exist; `lockkit run` creates it");
                Err(Failure::new(Code::UNAVAILABLE, text))
            }
            _ => Ok(lockkit::builder(self.text(creates))),
        }
    }

    /// The URL; with it, the store creates a missing table, or writes to a server since when it is the primary, only if
    /// it `creates`.
    fn text(&self, creates: bool) -> String {
        let given = |option| self.url.clone().options.text(option);
        let (option, value) = match self.url.scheme() {
            "postgres" | "mysql" | "sqlite" => ("schema", "check"),
            scheme
                if scheme.starts_with("redlock")
                    || scheme.ends_with("+sentinel")
                    || scheme.ends_with("+cluster")
                    || given("quarantine").is_some() =>
            {
                ("quarantine", "forever")
            }
            _ => return self.text.clone(),
        };
        // A value that creates nothing stays, and a wrong one, which the store refuses.
        let stays = match (option, given(option)) {
            (_, None) => false,
            ("schema", Some(given)) => given != "create",
            (_, Some(given)) => parse_duration(&given).is_err(),
        };
        if creates || stays {
            return self.text.clone();
        }
        let (path, options) = self.text.split_once('?').unwrap_or((&self.text, ""));
        let others = options.split('&').filter(|pair| {
            !pair.is_empty() && pair.split_once('=').is_none_or(|(name, _)| name != option)
        });
        let others: String = others.map(|pair| format!("{pair}&")).collect();
        format!("{path}?{others}{option}={value}")
    }
}

/// A path as it is written in a URL.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    path.bytes()
        .map(|byte| match byte {
            _ if plain(byte) => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Opens a store to read it, or for an operator: creates nothing, and tries once. Also returns the store in words.
/// Unless what follows `names` the store, says where the locks are if no URL was given.
pub(crate) async fn look(url: Option<&str>, names: bool) -> Result<(LockClient, String), Failure> {
    let location = Location::of(url)?;
    let client = location.builder(false)?.wait(Duration::ZERO);
    let client = client.connect().await?;
    if !names {
        location.say_if_embedded();
    }
    Ok((client, location.in_words()))
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

/// Where the embedded store keeps its files: `$XDG_STATE_HOME/lockkit`, else `~/.local/state/lockkit`, else
/// `/var/lib/lockkit` for root.
///
/// A path that is not absolute counts as none, for it would name another store in each directory.
fn state_dir() -> Result<String, Failure> {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let root = rustix::process::geteuid().is_root();
    let place = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .or_else(|| root.then(|| PathBuf::from("/var/lib")));
    let none = "neither XDG_STATE_HOME nor HOME is an absolute path, so that there is no directory for lock files; give --url or set LOCKKIT_URL";
    let place = place.ok_or_else(|| Failure::usage(none))?.join("lockkit");
    let odd = "the path of the lock files is not UTF-8 text; give --url or set LOCKKIT_URL";
    let place = place.into_os_string().into_string();
    place.map_err(|_| Failure::usage(odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(url: &str) -> Location {
        Location::of(Some(url)).unwrap()
    }

    #[test]
    fn reading_creates_no_table() {
        for (url, asked) in [
            ("postgres://h/db", "postgres://h/db?schema=check"),
            (
                "mariadb://h/db?ttl=5s",
                "mariadb://h/db?ttl=5s&schema=check",
            ),
            ("sqlite:a.db?schema=create", "sqlite:a.db?schema=check"),
            ("redis://h", "redis://h"),
        ] {
            assert_eq!(location(url).text(false), asked);
        }
    }

    #[test]
    fn the_store_in_words_has_no_secrets() {
        for (url, words) in [
            ("redis://me:s3cret@h:1/0?prefix=x", "redis://***@h:1/0"),
            ("file:/var/lib/locks?poll=1ms..2ms", "file:/var/lib/locks"),
        ] {
            assert_eq!(location(url).in_words(), words);
        }
    }

    #[test]
    fn a_path_comes_out_of_its_url() {
        let path = "//a b/%3f?#\u{e9}~.x";
        let url = format!("file://{}", escaped(path));
        assert_eq!(location(&url).url.path(), path);
    }
}
