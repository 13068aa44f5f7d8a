//! Rule: no two files of a crate import each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use anyhow::Result;

use super::modules::{Modules, Target};

/// Which file imports which, with the line and the path of each import.
type Imports = BTreeMap<(usize, usize), BTreeSet<(usize, String)>>;

/// The files of a crate that import each other, directly or through others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// A shortest way around: each file imports the next, the last one the first.
    pub(super) way: Vec<String>,
    /// All files that reach each other.
    pub(super) files: Vec<String>,
    /// Each import between them: file, line, path, imported file.
    pub(super) imports: Vec<(String, usize, String, String)>,
}

/// The circles of the crate whose root file is `root`. Paths are shown relative to its directory.
pub(super) fn find(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Result<Vec<Circle>> {
    let modules = Modules::read(root, read)?;
    let imports = imports(&modules);
    let dir = root.parent().unwrap_or(root);
    let name = |file: usize| {
        let path = &modules.files[file];
        let path = path.strip_prefix(dir).unwrap_or(path);
        path.to_string_lossy().replace('\\', "/")
    };
    let reached: Vec<_> = (0..modules.files.len())
        .map(|file| reachable(&imports, file))
        .collect();
    let mut circles = Vec::new();
    let mut done = BTreeSet::new();
    for file in 0..modules.files.len() {
        if done.contains(&file) || !reached[file].contains(&file) {
            continue;
        }
        let mutual = |other: &usize| reached[*other].contains(&file);
        let files: BTreeSet<_> = reached[file].iter().copied().filter(mutual).collect();
        let ways = files
            .iter()
            .filter_map(|start| way_around(&imports, *start));
        let way = ways.min_by_key(Vec::len).unwrap_or_default();
        let inside = imports
            .iter()
            .filter(|((from, to), _)| files.contains(from) && files.contains(to));
        let lines = inside.flat_map(|((from, to), mentions)| {
            let mentions = mentions.iter();
            mentions.map(|(line, path)| (name(*from), *line, path.clone(), name(*to)))
        });
        let mut names: Vec<_> = files.iter().copied().map(name).collect();
        names.sort();
        circles.push(Circle {
            way: way.into_iter().map(name).collect(),
            files: names,
            imports: lines.collect(),
        });
        done.extend(files);
    }
    Ok(circles)
}

fn imports(modules: &Modules) -> Imports {
    let mut imports = Imports::new();
    for (module, mention) in modules.mentions() {
        let from = modules.file_of(module);
        let to = match modules.resolve(module, &mention.path) {
            Some(Target::Item(file)) => file,
            Some(Target::Module(module)) if mention.glob => modules.file_of(module),
            // The name of a module leads nowhere by itself; what is taken out of it does.
            Some(Target::Module(_)) | None => continue,
        };
        if from != to {
            let found = (mention.line, mention.path.join("::"));
            imports.entry((from, to)).or_default().insert(found);
        }
    }
    imports
}

fn next(imports: &Imports, file: usize) -> impl Iterator<Item = usize> {
    let edges = imports.range((file, 0)..(file + 1, 0));
    edges.map(|((_, to), _)| *to)
}

/// The files that `start` imports, directly or through others.
fn reachable(imports: &Imports, start: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        open.extend(next(imports, file).filter(|to| reached.insert(*to)));
    }
    reached
}

/// A shortest way from `start` back to itself.
fn way_around(imports: &Imports, start: usize) -> Option<Vec<usize>> {
    let mut open = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = open.pop_front() {
        for to in next(imports, *way.last()?) {
            if to == start {
                return Some(way);
            }
            if seen.insert(to) {
                let mut longer = way.clone();
                longer.push(to);
                open.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate that consists of these files, each as its files in alphabetical order.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let read = |path: &Path| {
            let path = path.to_string_lossy();
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        let found = find(Path::new("lib.rs"), &read).unwrap();
        found.into_iter().map(|circle| circle.files).collect()
    }

    /// The circles of a crate with two modules, of which `b` imports `a`.
    fn with_a(a: &str) -> usize {
        circles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", &format!("pub struct A; {a}")),
            ("b.rs", "use crate::a::A; pub struct B; pub fn b() {}"),
            ("c.rs", "pub use crate::b::B as Other;"),
        ])
        .len()
    }

    #[test]
    fn each_form_of_an_import_closes_a_circle() {
        for a in [
            "use crate::b::B;",
            "use crate::{c, b::{self, B as Renamed}};",
            "use super::b::*;",
            "use self::super::b::B;",
            "use crate::b; fn f() { b::b() }",
            "use crate as root; fn f() { root::b::b() }",
            "use crate::c::Other;",
            "fn f() { use crate::b::B; }",
            "fn f() -> crate::b::B { todo!() }",
            "fn f() { assert!(super::b::b() == ()) }",
            "mod inner { use super::super::b::B; }",
            "impl From<crate::b::B> for A {}",
        ] {
            assert_eq!(with_a(a), 1, "{a}");
        }
    }

    #[test]
    fn what_is_no_import_closes_no_circle() {
        for a in [
            "use b::B;",
            "use crate::b;",
            "fn f() { b::B }",
            "pub use crate::b::B;",
            "/// [`crate::b::B`]\nfn f() {}",
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(all(test, unix))] mod tests;",
            "#[cfg(test)] use crate::b::B;",
            "fn f(c: A) { println!(\"{}\", c.b::<A>()) }",
        ] {
            assert_eq!(with_a(a), 0, "{a}");
        }
        assert_eq!(with_a("#[cfg(not(test))] use crate::b::B;"), 1);
    }

    #[test]
    fn a_reexport_leads_to_the_file_it_comes_from() {
        let folder = |queue: &str, place: &str| {
            circles(&[
                ("lib.rs", "mod queue; pub use queue::Place;"),
                (
                    "queue/mod.rs",
                    &format!("mod place; mod order; pub use self::place::Place; {queue}"),
                ),
                ("queue/place.rs", &format!("pub struct Place; {place}")),
                ("queue/order.rs", "use super::Place; pub struct Order;"),
            ])
        };
        assert!(folder("", "").is_empty());
        let both = vec![vec!["queue/order.rs", "queue/place.rs"]];
        assert_eq!(folder("", "use super::order::Order;"), both);
        assert!(folder("pub struct Queue(Place);", "").is_empty());
        let parent = vec![vec!["queue/mod.rs", "queue/place.rs"]];
        let found = folder("pub struct Queue(Place);", "use crate::queue::Queue;");
        assert_eq!(found, parent);
    }

    #[test]
    fn the_shortest_way_around_is_shown_in_order() {
        let read = |path: &Path| {
            let text = match path.to_str()? {
                "lib.rs" => "mod a; mod b; mod c; mod d;",
                "a.rs" => "use crate::b::B; pub struct A;",
                "b.rs" => "use crate::c::C; pub struct B;",
                "c.rs" => "use crate::a::A;\nuse crate::d::D; pub struct C;",
                "d.rs" => "use crate::a::A; pub struct D;",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let circle = find(Path::new("lib.rs"), &read).unwrap().remove(0);
        assert_eq!(circle.way, ["a.rs", "b.rs", "c.rs"]);
        assert_eq!(circle.files.len(), 4);
        let import = ("c.rs", 2, "crate::d::D", "d.rs");
        let mut shown = circle.imports.iter();
        assert!(shown.any(|(from, line, path, to)| (&**from, *line, &**path, &**to) == import));
    }
}
