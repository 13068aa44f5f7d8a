//! The order of those who stand in the queue of a lock.

use lockkit_core::BackendError;
use zookeeper_client::{Client, Error, Stat};

use crate::error::of_request;
use crate::keys;

/// From this number on the numbers of a queue are no order: past the last one of 32 bits the server
/// gives the same again and again, or goes on below zero.
const CLIFF: i32 = i32::MAX - (1 << 20);

/// Those who stand in the queue, in their order: the first holds the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    nodes: Vec<String>,
}

impl Queue {
    /// Lists the queue below `dir`; `None` if there is no such node.
    pub(crate) async fn read(
        operation: &'static str,
        client: &Client,
        dir: &str,
        children: impl Future<Output = Result<Vec<String>, Error>>,
    ) -> Result<Option<Self>, BackendError> {
        let children = match children.await {
            Ok(children) => children,
            Err(Error::NoNode) => return Ok(None),
            Err(error) => return Err(of_request(operation, &error)),
        };
        let mut nodes = numbered(children);
        if !is_order(&mut nodes) {
            nodes = by_creation(operation, client, dir, nodes).await?;
        }
        let nodes = nodes.into_iter().map(|(_, node)| node).collect();
        Ok(Some(Self { nodes }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// How many stand before `node`.
    pub(crate) fn place(&self, node: &str) -> Option<usize> {
        self.nodes.iter().position(|other| other == node)
    }

    /// The node that begins with `prefix`.
    pub(crate) fn find(&self, prefix: &str) -> Option<&str> {
        let node = self.nodes.iter().find(|node| node.starts_with(prefix));
        node.map(String::as_str)
    }

    /// The nearest and the second nearest of those before a place.
    pub(crate) fn before(&self, place: usize) -> (Option<&str>, Option<&str>) {
        let at = |back: usize| {
            let place = place.checked_sub(back)?;
            self.nodes.get(place).map(String::as_str)
        };
        (at(1), at(2))
    }
}

fn numbered(children: Vec<String>) -> Vec<(i32, String)> {
    let number = |node: String| Some((keys::number(&node)?, node));
    children.into_iter().filter_map(number).collect()
}

/// Sorts by number; answers whether that is the order of the queue. Below the cliff a number comes twice
/// where a writer of Curator's becomes a reader, who stands in the writer's place.
fn is_order(nodes: &mut [(i32, String)]) -> bool {
    nodes.sort_unstable();
    let mut numbers = nodes.iter().map(|&(number, _)| number);
    numbers.all(|number| (0..CLIFF).contains(&number))
}

/// Sorts by the transaction that made each node, which is always their order.
async fn by_creation(
    operation: &'static str,
    client: &Client,
    dir: &str,
    nodes: Vec<(i32, String)>,
) -> Result<Vec<(i32, String)>, BackendError> {
    // All are asked before the first answer is waited for.
    let asked: Vec<_> = nodes
        .into_iter()
        .map(|(number, node)| (client.check_stat(&format!("{dir}/{node}")), number, node))
        .collect();
    let mut made: Vec<(i64, i32, String)> = Vec::with_capacity(asked.len());
    for (stat, number, node) in asked {
        let stat: Option<Stat> = stat.await.map_err(|error| of_request(operation, &error))?;
        // Who has gone meanwhile stands before nobody.
        made.extend(stat.map(|stat| (stat.czxid, number, node)));
    }
    made.sort_unstable();
    let nodes = made.into_iter().map(|(_, number, node)| (number, node));
    Ok(nodes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(numbers: &[&str]) -> (bool, Vec<String>) {
        let children = numbers.iter().map(|number| format!("x-lock-{number}"));
        let mut nodes = numbered(children.collect());
        let order = is_order(&mut nodes);
        (order, nodes.into_iter().map(|(_, node)| node).collect())
    }

    #[test]
    fn numbers_are_the_order_as_numbers() {
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
    fn near_the_last_number_they_are_none() {
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
    fn a_reader_stands_in_the_place_of_the_writer_that_it_was() {
        let mut nodes = numbered(vec![
            "_c_3-lock-0000000002".into(),
            "_c_2-__READ__0000000001".into(),
            "_c_1-__WRIT__0000000001".into(),
        ]);
        assert!(is_order(&mut nodes));
        assert_eq!(nodes[2].1, "_c_3-lock-0000000002");
        assert!(keys::is_writer(&nodes[0].1) && !keys::is_writer(&nodes[1].1));
    }

    #[test]
    fn neighbours_and_places() {
        let nodes = ["a", "b", "c"].map(str::to_owned).to_vec();
        let queue = Queue { nodes };
        assert_eq!(queue.place("c"), Some(2));
        assert_eq!(queue.place("d"), None);
        assert_eq!(queue.before(0), (None, None));
        assert_eq!(queue.before(1), (Some("a"), None));
        assert_eq!(queue.before(2), (Some("b"), Some("a")));
        assert_eq!(queue.find("b"), Some("b"));
        assert!(!queue.is_empty());
    }

    #[test]
    fn strangers_are_ignored() {
        let nodes = numbered(vec![
            "leases".into(),
            "x-lock-0000000001".into(),
            "lock-".into(),
        ]);
        assert_eq!(nodes, [(1, "x-lock-0000000001".to_owned())]);
    }
}
