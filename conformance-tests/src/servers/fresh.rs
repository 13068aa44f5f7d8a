//! The initial data of a server. Making them takes seconds, so they are made once and copied.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;

use super::unprivileged::{open_to_others, run};
use crate::failure::Outcome;
use crate::storage::Storage;

/// Where such data lie, once they are made.
#[derive(Clone, Debug, Default)]
pub(super) struct Fresh(Arc<Mutex<Option<TempDir>>>);

impl Fresh {
    /// Puts a copy into `parent`, under the name `data`. `make` makes the original, if there is none
    /// yet.
    pub(super) fn copy(
        &self,
        parent: &Path,
        make: impl FnOnce(&Path) -> Outcome,
    ) -> Outcome<PathBuf> {
        let mut original = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let original = match &mut *original {
            Some(made) => made,
            empty => {
                let directory = Storage::Memory.directory()?;
                make(directory.path())?;
                empty.insert(directory)
            }
        };
        open_to_others(parent)?;
        let copy = parent.join("data");
        let from = original.path().join("data");
        run(
            &["cp", "-a"]
                .map(OsString::from)
                .into_iter()
                .chain([from.into(), copy.clone().into()])
                .collect::<Vec<_>>(),
            parent,
        )?;
        Ok(copy)
    }
}
