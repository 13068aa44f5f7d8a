//! `etcdctl lock`, jetcd and this library, on the same names of the same server.

mod etcdctl;
mod jetcd;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::{Jetcd, missing};
use conformance_tests::servers::EtcdCluster;

fn main() -> ExitCode {
    TestSuite::main(4, tests)
}

fn tests() -> TestSuite {
    let server = missing(EtcdCluster::PROGRAM);
    let etcdctl = TestSuite::new("etcdctl", server.clone().or_else(|| missing("etcdctl")))
        .test(etcdctl::their_hold_keeps_us_out_and_its_end_wakes_us)
        .test(etcdctl::our_hold_keeps_them_out_and_its_end_wakes_them)
        .test(etcdctl::their_death_frees_the_lock)
        .test(etcdctl::operators_see_and_break_their_hold);
    let jetcd = TestSuite::new("jetcd", server.or_else(Jetcd::missing))
        .test(jetcd::each_keeps_the_other_out)
        .test(jetcd::one_queue_for_both)
        .test(jetcd::a_killed_program_frees_its_lock);
    etcdctl.and(jetcd)
}
