//! Measures what lockkit itself costs: the benches are in `benches/`, and their figures in each
//! bench's own words.
//!
//! - `cargo bench -p lockkit-benches --bench overhead`: acquire, release and reentry on the memory
//!   store, beside the bare map operation that no lock in memory can do without.
//! - `cargo bench -p lockkit-benches --bench many_holds`: what 100 000 held guards cost in memory
//!   and processor time, and whether any is lost while all cores are busy.
