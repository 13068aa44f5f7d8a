//! Broken variants of the product, to see that the tests notice: those made by hand, and those that
//! cargo-mutants makes.

pub(crate) mod by_hand;
pub(crate) mod made;
mod table;
