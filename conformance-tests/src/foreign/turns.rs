//! The programs in `benches/peers`: other locks, which take turns as the workers of the bench do.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use lockkit_core::contract::Mode;

use super::{Curator, HOW, Kazoo, RedisPy, Redisson, directory, is_built_from, java_words};

/// A program that takes turns at somebody else's lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Turns {
    /// What it is called.
    pub label: &'static str,
    /// The scheme of the stores that it works on.
    pub scheme: &'static str,
    /// Whose lock it is, and which version.
    pub version: String,
    /// Why it cannot be used here.
    pub missing: Option<String>,
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// What its contenders want.
    pub mode: Mode,
    /// Its environment, beside what it gets anyway.
    pub environment: Vec<(&'static str, OsString)>,
}

/// What the Go programs are built from, beside its bytes when they were built.
const GO: [(&str, &str); 5] = [
    ("go.mod", include_str!("../../../benches/peers/go/go.mod")),
    ("go.sum", include_str!("../../../benches/peers/go/go.sum")),
    (
        "turns/turns.go",
        include_str!("../../../benches/peers/go/turns/turns.go"),
    ),
    (
        "etcd_mutex/main.go",
        include_str!("../../../benches/peers/go/etcd_mutex/main.go"),
    ),
    (
        "redsync/main.go",
        include_str!("../../../benches/peers/go/redsync/main.go"),
    ),
];
const TURNS_JAVA: &str = include_str!("../../../benches/peers/java/Turns.java");
const REDISSON_JAVA: &str = include_str!("../../../benches/peers/java/RedissonTurns.java");
const CURATOR_JAVA: &str = include_str!("../../../benches/peers/java/CuratorTurns.java");
const REDISSON_POM: &str = include_str!("../../interop/redisson/pom.xml");
const CURATOR_POM: &str = include_str!("../../interop/curator/pom.xml");
const REDIS_PY: &str = include_str!("../../interop/redis_py/requirements.txt");
const KAZOO: &str = include_str!("../../interop/kazoo/requirements.txt");

impl Turns {
    /// All of them, whether they are here or not.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let module = |name: &str| {
            let version = GO[0].1.lines().find_map(|line| {
                let line = line.trim();
                line.starts_with(name)
                    .then(|| line.replace(" // indirect", ""))
            });
            version.unwrap_or_else(|| name.to_owned())
        };
        let redisson = Self::java(
            ("Redisson", "redis", "RedissonTurns"),
            REDISSON_POM,
            REDISSON_JAVA,
            Redisson::missing(),
        );
        let curator = Self::java(
            ("Curator", "zk", "CuratorTurns"),
            CURATOR_POM,
            CURATOR_JAVA,
            Curator::missing(),
        );
        let redsync = Self::go(
            ("redsync", "redis", "redsync"),
            module("github.com/go-redsync/redsync"),
        );
        vec![
            Self::python(
                ("redis-py", "redis", "redis_py.py"),
                REDIS_PY,
                RedisPy::missing(),
            ),
            redisson.on_majority("Redisson RedLock", "RedissonRedLock"),
            redisson.readers("Redisson readers", "RReadWriteLock"),
            redisson.permits("Redisson permits", "RPermitExpirableSemaphore"),
            redisson,
            redsync.on_majority("redsync on redlock", "Mutex"),
            redsync,
            Self::go(
                ("Go concurrency.Mutex", "etcd", "etcd_mutex"),
                module("go.etcd.io/etcd/client"),
            ),
            Self::python(("kazoo", "zk", "kazoo_lock.py"), KAZOO, Kazoo::missing()),
            curator.readers("Curator readers", "InterProcessReadWriteLock"),
            curator.permits("Curator permits", "InterProcessSemaphoreV2"),
            curator,
        ]
    }

    fn python(
        (label, scheme, program): (&'static str, &'static str, &str),
        needs: &str,
        missing: Option<String>,
    ) -> Self {
        let packages = directory().join(label);
        Self {
            label,
            scheme,
            version: needs.trim().replace("==", " "),
            missing,
            words: vec!["python3".into(), sources().join(program).into()],
            mode: Mode::Exclusive,
            environment: vec![
                ("PYTHONPATH", packages.into()),
                ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ],
        }
    }

    fn java(
        (label, scheme, class): (&'static str, &'static str, &str),
        pom: &str,
        source: &str,
        missing: Option<String>,
    ) -> Self {
        let place = directory().join(label.to_lowercase());
        let built = [
            ("Turns.java", TURNS_JAVA),
            (&*format!("{class}.java"), source),
        ];
        let built = is_built_from(&place.join("turns"), &built);
        let how = || format!("the Java program with {label} is not built; {HOW}");
        let mut words = vec!["java".into()];
        words.extend(java_words(&place, "turns", class));
        Self {
            label,
            scheme,
            version: format!("{label} {}", version_in(pom)),
            missing: missing.or_else(|| (!built).then(how)),
            words,
            mode: Mode::Exclusive,
            environment: Vec::new(),
        }
    }

    /// The same program on several servers, of which a majority decides.
    fn on_majority(&self, label: &'static str, of: &str) -> Self {
        Self {
            label,
            scheme: "redlock",
            version: format!("{of} of {}", self.version),
            ..self.clone()
        }
    }

    /// The same program with the readers of its readers-writer lock.
    fn readers(&self, label: &'static str, of: &str) -> Self {
        self.with(label, of, "read", Mode::Read)
    }

    /// The same program with its semaphore, for one of four permits.
    fn permits(&self, label: &'static str, of: &str) -> Self {
        const FOUR: NonZeroU32 = NonZeroU32::new(4).unwrap();
        self.with(label, of, "4", Mode::Permit { of: FOUR })
    }

    fn with(&self, label: &'static str, of: &str, argument: &str, mode: Mode) -> Self {
        let mut words = self.words.clone();
        words.push(argument.into());
        Self {
            label,
            version: format!("{of} of {}", self.version),
            words,
            mode,
            ..self.clone()
        }
    }

    fn go((label, scheme, program): (&'static str, &'static str, &str), version: String) -> Self {
        let place = directory().join("go-turns");
        let built = is_built_from(&place.join("from"), &GO);
        let how = || format!("the Go program {program} is not built; {HOW}, with Go");
        Self {
            label,
            scheme,
            version,
            missing: (!built).then(how),
            words: vec![place.join(program).into()],
            mode: Mode::Exclusive,
            environment: Vec::new(),
        }
    }
}

fn sources() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).join("benches/peers")
}

/// The version of the one dependency in a file of Maven.
fn version_in(pom: &str) -> &str {
    let dependency = pom.split_once("<dependency>").map_or("", |(_, rest)| rest);
    let version = dependency.split_once("<version>").map_or("", |(_, it)| it);
    version.split('<').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_its_version() {
        for peer in Turns::all() {
            let digits = peer.version.chars().filter(char::is_ascii_digit).count();
            assert!(digits >= 2, "{}: {}", peer.label, peer.version);
        }
        assert_eq!(version_in(REDISSON_POM), "4.7.0");
    }
}
