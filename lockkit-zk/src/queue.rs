//! Lists the queue of a lock in its order.

use zookeeper_client::Error;

use crate::error::Result;
use crate::keys;
use crate::session::Session;

/// From this number on, the numbers of a queue are not its order: after the last one of 32 bits the server
/// repeats the same number, or goes on below zero.
const LAST_ORDERED: i32 = i32::MAX - (1 << 20);

/// Lists the nodes in the queue of a lock, the holder's first. Empty if the lock has no node.
pub(crate) async fn list(
    operation: &'static str,
    session: &Session,
    lock_path: &str,
) -> Result<Vec<String>> {
    let children = session.client.list_children(lock_path);
    read(operation, session, lock_path, children).await
}

/// As [`list`], with all that was written before by anyone, and with a heartbeat of the session.
pub(crate) async fn list_synced(
    operation: &'static str,
    session: &Session,
    lock_path: &str,
) -> Result<Vec<String>> {
    let heartbeat = session.heartbeat(operation);
    let children = session.client.list_children(lock_path);
    heartbeat.await?;
    read(operation, session, lock_path, children).await
}

/// Reads the answer to a listing that was sent before.
pub(crate) async fn read(
    operation: &'static str,
    session: &Session,
    lock_path: &str,
    children: impl Future<Output = Result<Vec<String>, Error>>,
) -> Result<Vec<String>> {
    let children = match children.await {
        Ok(children) => children,
        Err(Error::NoNode) => return Ok(Vec::new()),
        Err(error) => return Err(session.error(operation, &error)),
    };
    let mut nodes = numbered(children);
    if sort_by_number(&mut nodes) {
        return Ok(nodes.into_iter().map(|(_, node)| node).collect());
    }
    // The order of the transactions that created the nodes is always that of the queue. Sends all
    // requests before it waits for the first answer.
    let asked = nodes.into_iter().map(|node| {
        let path = format!("{lock_path}/{}", node.1);
        (session.stat(operation, &path), node)
    });
    let mut created = Vec::new();
    for (stat, node) in asked.collect::<Vec<_>>() {
        // A node that has gone meanwhile blocks no client.
        created.extend(stat.await?.map(|stat| (stat.czxid, node)));
    }
    created.sort_unstable();
    Ok(created.into_iter().map(|(_, (_, node))| node).collect())
}

/// The node of a queue that begins with `prefix`.
pub(crate) fn find(queue: &[String], prefix: &str) -> Option<String> {
    queue.iter().find(|node| node.starts_with(prefix)).cloned()
}

fn numbered(children: Vec<String>) -> Vec<(i32, String)> {
    let number = |node: String| Some((keys::number(&node)?, node));
    children.into_iter().filter_map(number).collect()
}

/// Sorts by number and returns whether that is the order of the queue. Two nodes have the same number while
/// a writer of Curator becomes a reader, which gets the writer's place.
fn sort_by_number(nodes: &mut [(i32, String)]) -> bool {
    nodes.sort_unstable();
    let mut numbers = nodes.iter().map(|&(number, _)| number);
    numbers.all(|number| (0..LAST_ORDERED).contains(&number))
}

#[cfg(test)]
mod tests {
    use lockkit_core::contract::Mode;

    use super::*;

    fn sorted(numbers: &[&str]) -> (bool, Vec<String>) {
        let children = numbers.iter().map(|number| format!("x-lock-{number}"));
        let mut nodes = numbered(children.collect());
        let order = sort_by_number(&mut nodes);
        (order, nodes.into_iter().map(|(_, node)| node).collect())
    }

    #[test]
    fn sorts_by_value_of_number() {
        let (order, nodes) = sorted(&["0000000010", "0000000009", "1999999999"]);
        assert!(order);
        assert_eq!(
            nodes,
            [
                "x-lock-0000000009",
                "x-lock-0000000010",
                "x-lock-1999999999"
            ]
        );
    }

    #[test]
    fn numbers_near_the_last_one_are_no_order() {
        for numbers in [
            &["2147483647", "2147483646"][..],
            &["0000000001", "2147483647"],
            &["0000000001", "-2147483648"],
            &["0000000001", "-000000005"],
            &["2146435072"],
        ] {
            assert!(!sorted(numbers).0, "{numbers:?}");
        }
        assert!(sorted(&[]).0);
    }

    #[test]
    fn downgraded_writer_keeps_its_place() {
        let mut nodes = numbered(vec![
            "_c_3-lock-0000000002".into(),
            "_c_2-__READ__0000000001".into(),
            "_c_1-__WRIT__0000000001".into(),
        ]);
        assert!(sort_by_number(&mut nodes));
        assert_eq!(nodes[2].1, "_c_3-lock-0000000002");
        assert_eq!(keys::mode(&nodes[0].1), Mode::Write);
        assert_eq!(keys::mode(&nodes[1].1), Mode::Read);
    }
}
