//! The modules of a crate: what each defines and imports, and which file a path leads to.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::Item;

use super::names::{Mention, Names, is_test};

#[derive(Debug)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: HashMap<String, usize>,
    names: Names,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Module(usize),
    /// Something that this file defines.
    Item(usize),
}

/// The modules of a crate, without those that only tests have.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) files: Vec<PathBuf>,
    modules: Vec<Module>,
}

impl Modules {
    /// Reads a crate from its root file on. `read` returns the text of a file, if there is one.
    pub(super) fn read(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Result<Self> {
        let mut modules = Self::default();
        let dir = root.parent().unwrap_or(root).to_owned();
        modules.add_file(root.to_owned(), dir, None, read)?;
        Ok(modules)
    }

    /// Adds a file, whose child modules lie in `dir`.
    fn add_file(
        &mut self,
        path: PathBuf,
        dir: PathBuf,
        parent: Option<usize>,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> Result<usize> {
        let text = read(&path).with_context(|| format!("{} is missing", path.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        self.files.push(path);
        self.add_module(self.files.len() - 1, &dir, parent, &parsed.items, read)
    }

    fn add_module(
        &mut self,
        file: usize,
        dir: &Path,
        parent: Option<usize>,
        items: &[Item],
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> Result<usize> {
        self.modules.push(Module {
            file,
            parent,
            children: HashMap::new(),
            names: Names::of(items),
        });
        let module = self.modules.len() - 1;
        for item in items {
            let Item::Mod(child) = item else { continue };
            if is_test(&child.attrs) {
                continue;
            }
            let name = child.ident.to_string();
            let inside = dir.join(&name);
            let added = if let Some((_, items)) = &child.content {
                self.add_module(file, &inside, Some(module), items, read)?
            } else {
                let flat = dir.join(format!("{name}.rs"));
                let is_flat = read(&flat).is_some();
                let path = if is_flat { flat } else { inside.join("mod.rs") };
                self.add_file(path, inside, Some(module), read)?
            };
            self.modules[module].children.insert(name, added);
        }
        Ok(module)
    }

    /// Each path that is no re-export, with its module.
    pub(super) fn mentions(&self) -> impl Iterator<Item = (usize, &Mention)> {
        let modules = self.modules.iter().enumerate();
        modules.flat_map(|(i, module)| module.names.mentions.iter().map(move |found| (i, found)))
    }

    pub(super) fn file_of(&self, module: usize) -> usize {
        self.modules[module].file
    }

    /// What a path leads to, through any re-exports. `None`: to another crate, or a local name.
    pub(super) fn resolve(&self, module: usize, path: &[String]) -> Option<Target> {
        self.follow(module, path, &mut HashSet::new())
    }

    fn follow<'a>(
        &'a self,
        module: usize,
        path: &'a [String],
        seen: &mut HashSet<(usize, &'a str)>,
    ) -> Option<Target> {
        let mut at = module;
        for (i, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = self.modules[at].parent?,
                name => {
                    let is_last = i + 1 == path.len();
                    match self.look_up(at, name, is_last, seen) {
                        Some(Target::Module(module)) => at = module,
                        Some(item) => return Some(item),
                        // Another crate, a local name, or what a macro has made.
                        None if i == 0 || self.is_import(at, name) => return None,
                        None => return Some(Target::Item(self.modules[at].file)),
                    }
                }
            }
        }
        Some(Target::Module(at))
    }

    fn is_import(&self, module: usize, name: &str) -> bool {
        self.modules[module].names.imports.contains_key(name)
    }

    fn look_up<'a>(
        &'a self,
        at: usize,
        name: &'a str,
        is_last: bool,
        seen: &mut HashSet<(usize, &'a str)>,
    ) -> Option<Target> {
        let module = &self.modules[at];
        let child = module.children.get(name).copied().map(Target::Module);
        if !is_last && child.is_some() {
            return child;
        }
        if module.names.items.contains(name) {
            return Some(Target::Item(module.file));
        }
        if !seen.insert((at, name)) {
            return child;
        }
        let import = module.names.imports.get(name);
        if let Some(target) = import.and_then(|path| self.follow(at, path, seen)) {
            return Some(target);
        }
        child.or_else(|| {
            module.names.globs.iter().find_map(|path| {
                let Some(Target::Module(from)) = self.follow(at, path, seen) else {
                    return None;
                };
                self.look_up(from, name, is_last, seen)
            })
        })
    }
}
