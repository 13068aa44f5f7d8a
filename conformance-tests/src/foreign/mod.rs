//! Programs of other projects that use the same stores as lockkit.
//!
//! `cargo x setup` downloads them, in pinned versions, into `target/foreign` of this workspace. The tests
//! only check whether they are there.

mod clients;
mod peer;
mod turns;
mod versions;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::process::Command;

pub use clients::{Curator, GoEtcd, GoZk, Jetcd, Kazoo, RedisPy, Redisson};
pub use peer::Peer;
pub use turns::Turns;
pub use versions::Version;

/// What to do about a program that is not there.
const HOW: &str = "`cargo x setup` brings it";

/// Where `cargo x setup` puts what comes over the network.
#[must_use]
pub fn directory() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).join("target/foreign")
}

/// The path of a program that the system has.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// Says that a program of the system is missing, if it is.
#[must_use]
pub fn missing(name: &str) -> Option<String> {
    program(name)
        .is_none()
        .then(|| format!("no `{name}` here; {HOW}"))
}

/// Whether the program in a directory was built from these sources: they lie beside it.
fn is_built_from(directory: &Path, sources: &[(&str, &str)]) -> bool {
    sources.iter().all(|(name, text)| {
        let built_from = std::fs::read_to_string(directory.join(name));
        built_from.is_ok_and(|built_from| built_from == *text)
    })
}

/// Starts the class `Peer` of a Java program.
fn java(directory: &Path) -> Command {
    let mut java = Command::new("java");
    // A short life: quick to start.
    java.arg("-XX:TieredStopAtLevel=1")
        .args(java_words(directory, "classes", "Peer"));
    java
}

/// The arguments that start a class of a Java program, in a small process.
fn java_words(directory: &Path, classes: &str, class: &str) -> Vec<OsString> {
    let mut path = OsString::from(directory.join(classes));
    path.push(":");
    path.push(directory.join("lib/*"));
    let words = ["-XX:+UseSerialGC", "-Xmx128m", "-cp"].map(OsString::from);
    words.into_iter().chain([path, class.into()]).collect()
}
