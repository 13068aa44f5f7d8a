//! `etcdctl lock` and this library, on the same names of the same server.

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod etcdctl;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::foreign::missing;
    use conformance_tests::servers::{EtcdCluster, guardian};

    if let Some(code) = guardian::serve() {
        return code;
    }
    let missing = missing(EtcdCluster::PROGRAM).or_else(|| missing("etcdctl"));
    conformance_tests::Ground::new("etcdctl", missing)
        .trial(etcdctl::their_hold_keeps_us_out_and_its_end_wakes_us)
        .trial(etcdctl::our_hold_keeps_them_out_and_its_end_wakes_them)
        .trial(etcdctl::their_death_frees_the_lock)
        .trial(etcdctl::operators_see_and_break_their_hold)
        .run(4)
}
