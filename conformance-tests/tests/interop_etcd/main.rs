//! `etcdctl lock`, jetcd, Go's mutex and this library, on the same names of the same server.

#![expect(clippy::print_stdout, reason = "the figures are for people")]

mod etcdctl;
mod go;
mod jetcd;
mod world;

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
        .test(etcdctl::their_hold_excludes_us_until_its_end)
        .test(etcdctl::our_hold_excludes_them_until_its_end)
        .test(etcdctl::their_death_frees_lock)
        .test(etcdctl::operator_sees_and_breaks_their_hold);
    let jetcd = TestSuite::new("jetcd", server.clone().or_else(Jetcd::missing))
        .test(jetcd::each_excludes_the_other)
        .test(jetcd::one_queue_for_both)
        .test(jetcd::killed_program_frees_its_lock);
    etcdctl.and(jetcd).and(go::tests(server))
}
