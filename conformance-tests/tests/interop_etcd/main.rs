//! `etcdctl lock`, jetcd and this library, on the same names of the same server.

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod etcdctl;
#[cfg(unix)]
mod jetcd;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::foreign::{Jetcd, missing};
    use conformance_tests::servers::{EtcdCluster, guardian};

    if let Some(code) = guardian::serve() {
        return code;
    }
    let server = missing(EtcdCluster::PROGRAM);
    let etcdctl = Ground::new("etcdctl", server.clone().or_else(|| missing("etcdctl")))
        .trial(etcdctl::their_hold_keeps_us_out_and_its_end_wakes_us)
        .trial(etcdctl::our_hold_keeps_them_out_and_its_end_wakes_them)
        .trial(etcdctl::their_death_frees_the_lock)
        .trial(etcdctl::operators_see_and_break_their_hold);
    let jetcd = Ground::new("jetcd", server.or_else(Jetcd::missing))
        .trial(jetcd::each_keeps_the_other_out)
        .trial(jetcd::one_queue_for_both)
        .trial(jetcd::a_killed_program_frees_its_lock);
    etcdctl.and(jetcd).run(4)
}
