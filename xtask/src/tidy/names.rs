//! What a source file defines, imports and names.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// A path as written in a source file, and where.
#[derive(Debug)]
pub(super) struct Mention {
    pub(super) line: usize,
    pub(super) path: Vec<String>,
    /// `use a::*`.
    pub(super) glob: bool,
}

/// The names and paths of one module, without its child modules and without what only tests have.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) items: HashSet<String>,
    /// Names that a `use` brings, with the paths that they stand for.
    pub(super) imports: HashMap<String, Vec<String>>,
    pub(super) globs: Vec<Vec<String>>,
    /// Each `use` that is no re-export, and each path outside of a `use`.
    pub(super) mentions: Vec<Mention>,
}

impl Names {
    pub(super) fn of(items: &[Item]) -> Self {
        let mut names = Self::default();
        for item in items {
            names.visit_item(item);
        }
        names
    }

    fn mention(&mut self, line: usize, path: Vec<String>, glob: bool) {
        self.mentions.push(Mention { line, path, glob });
    }

    fn import(&mut self, tree: &UseTree, before: &[String], reexport: bool) {
        let mut path = before.to_vec();
        let (name, line) = match tree {
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, reexport);
                }
                return;
            }
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                return self.import(&inner.tree, &path, reexport);
            }
            UseTree::Glob(star) => {
                self.globs.push(path.clone());
                if !reexport {
                    self.mention(star.span().start().line, path, true);
                }
                return;
            }
            UseTree::Name(name) if name.ident == "self" => (before.last().cloned(), tree.span()),
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                (path.last().cloned(), tree.span())
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                (Some(rename.rename.to_string()), tree.span())
            }
        };
        let name = name.unwrap_or_default();
        self.imports.insert(name, path.clone());
        // A re-export is no use of its own; names that the file itself uses are found as paths.
        if !reexport {
            self.mention(line.start().line, path, false);
        }
    }

    /// The paths in the text that a macro is given, which no parser knows.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let (mut colons, mut after_dot) = (0, false);
        for token in tokens {
            if let TokenTree::Ident(ident) = &token {
                if colons != 2 {
                    self.end(&mut path, line);
                }
                if !after_dot {
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                }
                (colons, after_dot) = (0, false);
                continue;
            }
            if let TokenTree::Punct(punct) = &token {
                after_dot = punct.as_char() == '.';
                if punct.as_char() == ':' {
                    colons += 1;
                    continue;
                }
            } else {
                after_dot = false;
            }
            colons = 0;
            self.end(&mut path, line);
            if let TokenTree::Group(group) = token
                && group.delimiter() != Delimiter::None
            {
                self.scan(group.stream());
            }
        }
        self.end(&mut path, line);
    }

    fn end(&mut self, path: &mut Vec<String>, line: usize) {
        if !path.is_empty() {
            self.mention(line, std::mem::take(path), false);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attrs, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            // A child module has names of its own.
            _ => return,
        };
        if is_test(attrs) {
            return;
        }
        if let Some(name) = name {
            self.items.insert(name.to_string());
        }
        if let Item::Use(item) = item {
            let reexport = !matches!(item.vis, syn::Visibility::Inherited);
            self.import(&item.tree, &[], reexport);
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !matches!(item, syn::ImplItem::Fn(item) if is_test(&item.attrs)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        if path.leading_colon.is_none() {
            self.mention(path.span().start().line, names.collect(), false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.scan(call.tokens.clone());
    }

    /// Attributes name macros and features.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// Whether this is compiled for tests only.
pub(super) fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("test")
            || attr.path().is_ident("cfg") && attr.parse_args::<TokenStream>().is_ok_and(needs_test)
    })
}

/// Whether `test`, or `all(.., test, ..)`.
fn needs_test(condition: TokenStream) -> bool {
    let mut name = String::new();
    for token in condition {
        match token {
            TokenTree::Ident(ident) => name = ident.to_string(),
            TokenTree::Group(group) if name == "all" => return needs_test(group.stream()),
            TokenTree::Group(_) => name.clear(),
            TokenTree::Punct(_) if name == "test" => return true,
            _ => name.clear(),
        }
    }
    name == "test"
}
