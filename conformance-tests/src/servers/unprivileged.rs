//! Servers that refuse to run as root.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::failure::{Failure, Outcome};
use crate::foreign::missing;

/// As which user such a server runs: as ours, unless that is root.
#[derive(Clone, Debug)]
pub(super) struct Unprivileged(Option<Account>);

#[derive(Clone, Debug)]
struct Account {
    user: u32,
    group: u32,
}

impl Unprivileged {
    /// The account of this name if the system knows it, or that of `nobody`.
    pub(super) fn like(name: &str) -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let find = |name: &str| {
            let line = accounts
                .lines()
                .map(|line| line.split(':').collect::<Vec<_>>());
            let line = line.into_iter().find(|line| line.first() == Some(&name))?;
            let number = |field: usize| line.get(field)?.parse().ok();
            Some(Account {
                user: number(2)?,
                group: number(3)?,
            })
        };
        // The usual numbers of `nobody`.
        let nobody = Account {
            user: 65534,
            group: 65534,
        };
        Self(Some(
            find(name).or_else(|| find("nobody")).unwrap_or(nobody),
        ))
    }

    /// Why nothing can be started as that user.
    pub(super) fn missing(&self) -> Option<String> {
        self.0.as_ref().and_then(|_| missing("setpriv"))
    }

    /// Whether that user may start what lies there.
    pub(super) fn may_enter(&self, path: &Path) -> bool {
        let open = |path: &Path| {
            let mode = fs::metadata(path).map(|it| it.permissions().mode());
            mode.is_ok_and(|mode| mode & 0o001 != 0)
        };
        self.0.is_none() || path.ancestors().all(open)
    }

    /// The words before a command that make it that user's.
    pub(super) fn words(&self) -> Vec<OsString> {
        let Some(Account { user, group }) = self.0 else {
            return Vec::new();
        };
        // The change of user forgets the signal that the guardian has asked for.
        let words =
            format!("setpriv --reuid={user} --regid={group} --clear-groups --pdeathsig=KILL --");
        words.split(' ').map(OsString::from).collect()
    }

    /// Makes a directory that belongs to that user, in one of ours that it can pass through.
    pub(super) fn directory(&self, parent: &Path, name: &str) -> Outcome<std::path::PathBuf> {
        let path = parent.join(name);
        fs::create_dir(&path)?;
        if let Some(Account { user, group }) = self.0 {
            open_to_others(parent)?;
            chown(&path, Some(user), Some(group))?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(path)
    }

    /// Runs a command to its end as that user.
    pub(super) fn run(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
        directory: &Path,
    ) -> Outcome {
        let mut words = self.words();
        words.push(program.into());
        words.extend(arguments.into_iter().map(Into::into));
        run(&words, directory)
    }
}

/// Lets others pass through a directory of ours.
pub(super) fn open_to_others(directory: &Path) -> Outcome {
    Ok(fs::set_permissions(
        directory,
        fs::Permissions::from_mode(0o711),
    )?)
}

/// Lets others read a file of ours.
pub(super) fn readable(file: &Path) -> Outcome {
    Ok(fs::set_permissions(
        file,
        fs::Permissions::from_mode(0o644),
    )?)
}

/// Runs a command to its end.
pub(super) fn run(words: &[OsString], directory: &Path) -> Outcome {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Failure::new("no program is named"));
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    let output = command.env("HOME", directory).output()?;
    if output.status.success() {
        return Ok(());
    }
    let failure = Failure::new(format!("`{words:?}` failed"));
    let said = [output.stdout, output.stderr].concat();
    Err(failure.with_detail(&String::from_utf8_lossy(&said)))
}
