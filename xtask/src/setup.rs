//! Installs what the tests need on Debian and Ubuntu, and says elsewhere what is missing.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use xshell::cmd;

use crate::done::Done;
use crate::fetch;
use crate::workspace::Workspace;

/// A program that some tests start, and the Debian package that holds it. A path is a file that need
/// not be a program.
struct Need {
    program: &'static str,
    package: &'static str,
    for_what: &'static str,
}

/// What builds need.
const OF_BUILDS: &[Need] = &[
    Need {
        program: "protoc",
        package: "protobuf-compiler",
        for_what: "building the client of etcd",
    },
    Need {
        program: "/usr/include/google/protobuf/empty.proto",
        package: "libprotobuf-dev",
        for_what: "building the client of etcd",
    },
];

/// What tests start. A store adds a line for its server.
const OF_TESTS: &[Need] = &[
    Need {
        program: "flock",
        package: "util-linux",
        for_what: "the file store beside flock(1)",
    },
    Need {
        program: "setsid",
        package: "util-linux",
        for_what: "programs in a session of their own",
    },
    Need {
        program: "ps",
        package: "procps",
        for_what: "what became of processes",
    },
    Need {
        program: "redis-server",
        package: "redis-server",
        for_what: "the store on Redis",
    },
    Need {
        program: "nutcracker",
        package: "nutcracker",
        for_what: "Redis behind a proxy",
    },
    Need {
        program: "postgres",
        package: "postgresql",
        for_what: "the store on PostgreSQL",
    },
    Need {
        program: "pgbouncer",
        package: "pgbouncer",
        for_what: "PostgreSQL behind a pooler",
    },
    Need {
        program: "mariadbd",
        package: "mariadb-server",
        for_what: "the store on MariaDB",
    },
    Need {
        program: "faketime",
        package: "faketime",
        for_what: "databases whose clock jumps",
    },
    Need {
        program: "/usr/share/java/zookeeper.jar",
        package: "zookeeper",
        for_what: "the store on ZooKeeper",
    },
    Need {
        program: "/usr/share/java/slf4j-simple.jar",
        package: "libslf4j-java",
        for_what: "the log of ZooKeeper",
    },
    Need {
        program: "/usr/share/java/netty-codec.jar",
        package: "libnetty-java",
        for_what: "ZooKeeper with TLS",
    },
    Need {
        program: "openssl",
        package: "openssl",
        for_what: "certificates of the tests",
    },
    Need {
        program: "etcd",
        package: "etcd-server",
        for_what: "the store on etcd",
    },
    Need {
        program: "etcdctl",
        package: "etcd-client",
        for_what: "locks shared with etcdctl",
    },
    Need {
        program: "javac",
        package: "default-jdk-headless",
        for_what: "locks shared with Java programs",
    },
    Need {
        program: "mvn",
        package: "maven",
        for_what: "the libraries of Java programs",
    },
    Need {
        program: "python3",
        package: "python3",
        for_what: "locks shared with Python programs",
    },
    Need {
        program: "pip3",
        package: "python3-pip",
        for_what: "the libraries of Python programs, and other versions of servers",
    },
    Need {
        program: "chromium",
        package: "chromium",
        for_what: "the page of the bench in a real browser",
    },
    Need {
        program: "chromedriver",
        package: "chromium-driver",
        for_what: "leading that browser",
    },
    Need {
        program: "perl",
        package: "perl-base",
        for_what: "programs with signal masks of their own",
    },
];

/// Calls `apt-get`. A package of a server would start it as a service of the machine: the tests start
/// their own, so that is refused meanwhile, as `policy-rc.d` provides.
const APT: &str = r#"
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
fi
DEBIAN_FRONTEND=noninteractive apt-get -y "$@"
"#;

/// Parts of the Rust toolchain that a minimal installation leaves out.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// All of it: programs, and what is brought from elsewhere.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    for_builds(workspace)?;
    for_tests(workspace)?;
    fetch::run(workspace)
}

/// What the build itself needs.
pub(crate) fn for_builds(workspace: &Workspace) -> Result<Done> {
    add_components(workspace)?;
    install_programs(workspace, OF_BUILDS)?;
    Ok(Done::Passed)
}

/// The programs of the system that the tests start.
pub(crate) fn for_tests(workspace: &Workspace) -> Result<Done> {
    // One at a time. What another one has installed is found.
    let target = workspace.root.join("target");
    workspace.sh.create_dir(&target)?;
    let turn = File::create(target.join("setup.lock"))?;
    turn.lock()?;
    install_programs(workspace, OF_TESTS)?;
    Ok(Done::Passed)
}

fn install_programs(workspace: &Workspace, needs: &[Need]) -> Result<()> {
    let missing: Vec<_> = needs
        .iter()
        .filter(|need| !is_there(need.program))
        .collect();
    for need in needs {
        let found = if is_there(need.program) {
            "found"
        } else {
            "missing"
        };
        println!("   {:<16} {found}: {}", need.program, need.for_what);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.dedup();
    install(workspace, &packages)?;
    for need in missing {
        if !is_there(need.program) {
            bail!(
                "package {} is installed, but `{}` is still not in PATH",
                need.package,
                need.program
            );
        }
    }
    Ok(())
}

fn add_components(workspace: &Workspace) -> Result<()> {
    for (subcommand, component) in COMPONENTS {
        let there = workspace.cargo(subcommand).arg("--version").quiet();
        if there.ignore_stdout().ignore_stderr().run().is_ok() {
            continue;
        }
        if !is_there("rustup") {
            bail!("`cargo {subcommand}` is missing: install {component} for this Rust toolchain");
        }
        cmd!(workspace.sh, "rustup component add {component}").run()?;
    }
    Ok(())
}

fn install(workspace: &Workspace, packages: &[&str]) -> Result<()> {
    let sh = &workspace.sh;
    let by_hand = format!(
        "install these Debian packages or their like: {}",
        packages.join(" ")
    );
    if !is_there("apt-get") {
        bail!("this is no Debian or Ubuntu: {by_hand}");
    }
    let root = cmd!(sh, "id -u").quiet().read()? == "0";
    let may_sudo = || {
        let asked = cmd!(sh, "sudo -n true")
            .quiet()
            .ignore_stdout()
            .ignore_stderr();
        is_there("sudo") && asked.run().is_ok()
    };
    let sudo: &[&str] = match root {
        true => &[],
        false if may_sudo() => &["sudo", "-n"],
        false => bail!("neither root nor sudo without a password: {by_hand}"),
    };
    let apt = |args: &[&str]| {
        let words = [sudo, &["sh", "-c", APT, "apt-get"], args].concat();
        let (program, args) = (words[0], &words[1..]);
        cmd!(sh, "{program} {args...}").run()
    };
    apt(&["update"])?;
    let install = ["install", "--no-install-recommends"];
    apt(&[&install[..], packages].concat())?;
    Ok(())
}

fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).is_file();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    // Where servers lie, which not every user has in PATH.
    let system = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .chain(postgres())
        .any(|dir| dir.join(program).is_file())
}

/// Where Debian keeps each version of PostgreSQL, out of everybody's PATH.
fn postgres() -> impl Iterator<Item = PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    versions.flatten().map(|version| version.path().join("bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_up_in_the_path() {
        assert!(is_there("cargo"));
        assert!(!is_there("lockkit-no-such-program"));
    }
}
