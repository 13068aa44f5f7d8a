//! What cargo knows of this workspace, and how to call cargo from inside `cargo run`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{MetadataCommand, Package, TargetKind};
use xshell::{Cmd, Shell, cmd};

/// The crates of this repository, and a shell in its top directory.
pub(crate) struct Workspace {
    pub(crate) sh: Shell,
    pub(crate) root: PathBuf,
    packages: Vec<Package>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask lies in a directory of the workspace")?
            .to_owned();
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .no_deps()
            .exec()?;
        let sh = Shell::new()?;
        sh.change_dir(&root);
        Ok(Self {
            sh,
            root,
            packages: metadata.packages,
        })
    }

    pub(crate) fn crates(&self) -> impl Iterator<Item = Crate<'_>> {
        self.packages.iter().map(Crate)
    }

    /// A call of cargo that does not see the variables which `cargo run` has set for xtask itself:
    /// build scripts that watch them would run again for each other way in which cargo is started.
    pub(crate) fn cargo(&self, subcommand: &str) -> Cmd<'_> {
        let mut cargo = cmd!(self.sh, "cargo {subcommand}");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                cargo = cargo.env_remove(&name);
            }
        }
        cargo
    }
}

/// One crate of the workspace.
pub(crate) struct Crate<'a>(&'a Package);

impl<'a> Crate<'a> {
    pub(crate) fn name(&self) -> &'a str {
        self.0.name.as_str()
    }

    pub(crate) fn dir(&self) -> &'a Path {
        let manifest = self.0.manifest_path.as_std_path();
        manifest.parent().unwrap_or(manifest)
    }

    pub(crate) fn manifest(&self) -> &'a Path {
        self.0.manifest_path.as_std_path()
    }

    /// Whether it may be published, and so be built outside this workspace.
    pub(crate) fn is_published(&self) -> bool {
        self.0.publish.as_ref().is_none_or(|list| !list.is_empty())
    }

    /// The oldest compiler that it declares, as a toolchain is called: `1.89`.
    pub(crate) fn rust_version(&self) -> Option<String> {
        let version = self.0.rust_version.as_ref()?;
        Some(format!("{}.{}", version.major, version.minor))
    }

    pub(crate) fn has_readme(&self) -> bool {
        self.0.readme.is_some()
    }

    /// Whether others build on it.
    pub(crate) fn is_public_library(&self) -> bool {
        self.is_published() && self.has(&TargetKind::Lib)
    }

    pub(crate) fn has(&self, kind: &TargetKind) -> bool {
        self.0
            .targets
            .iter()
            .any(|target| target.kind.contains(kind))
    }

    /// The name of its target of that kind, as the compiler sees it.
    pub(crate) fn target_name(&self, kind: &TargetKind) -> Option<&'a str> {
        let mut targets = self.0.targets.iter();
        let target = targets.find(|target| target.kind.contains(kind))?;
        Some(&target.name)
    }

    /// The root files of its library and its programs.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &'a Path> + use<'a> {
        let of_product = |kind: &TargetKind| matches!(kind, TargetKind::Lib | TargetKind::Bin);
        let targets = self.0.targets.iter();
        targets
            .filter(move |target| target.kind.iter().any(of_product))
            .map(|target| target.src_path.as_std_path())
    }

    pub(crate) fn features(&self) -> impl Iterator<Item = &'a str> {
        self.0.features.keys().map(String::as_str)
    }

    /// The names of its integration tests.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.0
            .targets
            .iter()
            .filter(|target| target.kind.contains(&TargetKind::Test))
            .map(|target| target.name.as_str())
    }
}
