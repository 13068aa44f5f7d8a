//! `flock(2)` and nothing else.

use std::any::Any;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use lockkit::url::StoreUrl;

use super::{Bare, Contender, Fact, Words};
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(super) fn open(url: &StoreUrl) -> io::Result<Self> {
        let dir = PathBuf::from(url.path());
        fs::create_dir_all(&dir)?;
        Ok(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name).with_extension("bare")
    }
}

fn handle(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// Waits in the kernel's own queue.
async fn locked(path: PathBuf) -> Outcome<File> {
    let wait = move || {
        let file = handle(&path)?;
        file.lock()?;
        io::Result::Ok(file)
    };
    Ok(tokio::task::spawn_blocking(wait).await??)
}

#[async_trait]
impl Bare for Files {
    fn words(&self) -> Words {
        Words {
            cycle: "open + flock + close",
            turn: "open + flock, waiting in the kernel, + close",
            recovery: "the kernel ends flock with its process",
            hold: "an open file with flock",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let here = fs::canonicalize(&self.dir)?;
        Ok(vec![
            ("file system".into(), system_of(&mounts, &here)),
            (
                "durability".into(),
                "nothing is flushed; the locks end with their processes".into(),
            ),
        ])
    }

    async fn cycle(&self, name: &str) -> Outcome {
        // Free, except for a moment in which a program that inspects this process can keep a file open.
        Ok(handle(&self.path(name))?.lock()?)
    }

    async fn contender(&self, name: &str, _number: usize) -> Outcome<Box<dyn Contender>> {
        Ok(Box::new(Turn(self.path(name))))
    }

    async fn take(&self, name: &str, _ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>> {
        let file = handle(&self.path(name))?;
        file.lock()?;
        Ok(Box::new(file))
    }

    async fn wait_for(&self, name: &str) -> Outcome {
        locked(self.path(name)).await.map(drop)
    }

    async fn keep_all(&self, _names: &[String], _ttl: Duration) -> Outcome {
        Ok(())
    }

    async fn sweep(&self, prefix: &str) -> Outcome {
        if prefix.is_empty() {
            return Err(Failure::new("only the files of a run are removed"));
        }
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

struct Turn(PathBuf);

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        let _held = locked(self.0.clone()).await?;
        taken.now();
        Ok(())
    }
}

/// The kind of the file system that holds `path`: that of the longest place of a mount above it.
fn system_of(mounts: &str, path: &Path) -> String {
    let lines = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = lines.filter(|(place, _)| path.starts_with(place));
    above
        .max_by_key(|(place, _)| place.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_names_the_file_system() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp2 xfs rw 0 0\n";
        let of = |path: &str| system_of(mounts, Path::new(path));
        assert_eq!(of("/tmp/x/y"), "tmpfs");
        assert_eq!(of("/tmp2"), "xfs");
        assert_eq!(of("/tmp3"), "ext4");
        assert_eq!(system_of("", Path::new("/x")), "unknown");
    }
}
