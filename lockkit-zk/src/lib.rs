//! A store of lockkit.
