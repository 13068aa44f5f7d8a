//! Installs what the tests need on Debian and Ubuntu, and says elsewhere what is missing.

use std::env;

use anyhow::{Result, bail};
use xshell::cmd;

use crate::ci::Done;
use crate::workspace::Workspace;

/// A program that some tests start, and the Debian package that holds it.
struct Need {
    program: &'static str,
    package: &'static str,
    for_what: &'static str,
}

/// A store adds a line for its server.
const NEEDS: &[Need] = &[
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
];

/// Parts of the Rust toolchain that a minimal installation leaves out.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

pub(crate) fn run(workspace: &Workspace) -> Result<Done> {
    add_components(workspace)?;
    let missing: Vec<_> = NEEDS
        .iter()
        .filter(|need| !is_there(need.program))
        .collect();
    for need in NEEDS {
        let found = if is_there(need.program) {
            "found"
        } else {
            "missing"
        };
        println!("   {:<16} {found}: {}", need.program, need.for_what);
    }
    if missing.is_empty() {
        return Ok(Done::Passed);
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
    Ok(Done::Passed)
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
        let quiet = "DEBIAN_FRONTEND=noninteractive";
        let words = [sudo, &["env", quiet, "apt-get", "-y"], args].concat();
        let (program, args) = (words[0], &words[1..]);
        cmd!(sh, "{program} {args...}").run()
    };
    apt(&["update"])?;
    let install = ["install", "--no-install-recommends"];
    apt(&[&install[..], packages].concat())?;
    Ok(())
}

fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
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
