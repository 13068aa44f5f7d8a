//! The real Curator, kazoo, go-zookeeper and this library, on the same nodes of the same server.

mod curator;
mod elections;
mod gozk;
mod kazoo;
mod readers;
mod world;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::{Curator, GoZk, Kazoo};
use conformance_tests::servers::ZkServer;

fn main() -> ExitCode {
    TestSuite::main(2, tests)
}

fn tests() -> TestSuite {
    let missing = |other: Option<String>| ZkServer::missing().or(other);
    let curator = TestSuite::new("curator", missing(Curator::missing()))
        .test(curator::each_side_excludes_the_other)
        .test(curator::each_side_wakes_the_other_in_one_queue)
        .test(curator::both_work_at_once_and_tokens_grow)
        .test(curator::killed_program_frees_its_lock)
        .test(curator::broken_hold_of_curator_passes_to_our_waiter)
        .test(curator::our_waiter_waits_for_a_writer_that_becomes_a_reader)
        .test(elections::curator_and_we_elect_one_leader_together)
        .test(readers::readers_of_curator_share_with_ours)
        .test(readers::curator_waits_in_the_same_queue)
        .test(readers::writer_of_curator_becomes_a_reader_before_ours);
    let kazoo = TestSuite::new("kazoo", missing(Kazoo::missing()))
        .test(kazoo::its_nodes_are_respected)
        .test(kazoo::it_respects_our_nodes_if_configured)
        .test(kazoo::it_respects_our_nodes_with_its_names)
        .test(kazoo::both_wait_in_one_queue)
        .test(readers::readers_of_kazoo_share_with_ours)
        .test(readers::kazoo_waits_in_the_same_queue);
    // Go is optional.
    let go = TestSuite::new("go-zookeeper", ZkServer::missing())
        .needing(GoZk::missing())
        .test(gozk::both_sides_wait_in_one_queue);
    curator.and(kazoo).and(go)
}
