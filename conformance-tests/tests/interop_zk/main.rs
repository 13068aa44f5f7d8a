//! The real Curator, kazoo, go-zookeeper and this library, on the same nodes of the same server.

use std::process::ExitCode;

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod curator;
#[cfg(unix)]
mod gozk;
#[cfg(unix)]
mod kazoo;
#[cfg(unix)]
mod world;

#[cfg(unix)]
fn main() -> ExitCode {
    use conformance_tests::Ground;
    use conformance_tests::foreign::{Curator, GoZk, Kazoo};
    use conformance_tests::servers::{ZkServer, guardian};

    if let Some(code) = guardian::serve() {
        return code;
    }
    let missing = |other: Option<String>| ZkServer::missing().or(other);
    let curator = Ground::new("curator", missing(Curator::missing()))
        .trial(curator::each_side_excludes_the_other)
        .trial(curator::each_side_wakes_the_other_in_one_queue)
        .trial(curator::both_work_at_once_and_tokens_grow)
        .trial(curator::a_killed_program_frees_its_lock)
        .trial(curator::a_broken_hold_of_theirs_is_ours_next)
        .trial(curator::a_writer_that_becomes_a_reader_is_waited_for);
    let kazoo = Ground::new("kazoo", missing(Kazoo::missing()))
        .trial(kazoo::its_nodes_are_respected)
        .trial(kazoo::it_respects_ours_if_it_is_told_to)
        .trial(kazoo::it_respects_our_nodes_with_its_names)
        .trial(kazoo::both_stand_in_one_queue);
    // Nobody has to have Go.
    let go = Ground::new("go-zookeeper", ZkServer::missing())
        .needing(GoZk::missing())
        .trial(gozk::both_sides_stand_in_one_queue);
    curator.and(kazoo).and(go).run(2)
}
