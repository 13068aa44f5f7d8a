//! The tombstones: which tickets were released, so that a late attempt of one makes no hold.

use std::collections::{HashMap, VecDeque};

use crate::clock::Moment;
use crate::holder::{ClientId, HolderId};

/// A client's tombstones are ranges of numbers, and neighbours melt together: a client that
/// releases all its tickets costs one range, however many there were.
const MAX_RANGES: usize = 1024;
/// The clients whose tombstones are kept; the one that was idle longest is forgotten.
const MAX_CLIENTS: usize = 1024;

/// Released tickets, bounded: what is forgotten first is what was released longest ago.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    clients: HashMap<ClientId, Ranges>,
}

#[derive(Debug)]
struct Ranges {
    /// Sorted, disjoint, not adjacent; both ends are included.
    ranges: VecDeque<(u64, u64)>,
    used: Moment,
}

impl Gone {
    pub(crate) fn insert(&mut self, holder: HolderId, now: Moment) {
        if let Some(client) = self.clients.get_mut(&holder.client()) {
            client.insert(holder.number(), now);
            return;
        }
        self.make_room();
        let client = Ranges {
            ranges: VecDeque::from([(holder.number(), holder.number())]),
            used: now,
        };
        self.clients.insert(holder.client(), client);
    }

    pub(crate) fn contains(&self, holder: HolderId) -> bool {
        self.clients
            .get(&holder.client())
            .is_some_and(|client| client.contains(holder.number()))
    }

    pub(crate) fn clear(&mut self) {
        self.clients.clear();
    }

    fn make_room(&mut self) {
        if self.clients.len() < MAX_CLIENTS {
            return;
        }
        let idle = self.clients.iter().min_by_key(|(_, client)| client.used);
        if let Some((&id, _)) = idle {
            self.clients.remove(&id);
        }
    }
}

impl Ranges {
    fn contains(&self, n: u64) -> bool {
        let after = self.ranges.partition_point(|&(first, _)| first <= n);
        after > 0 && n <= self.ranges[after - 1].1
    }

    fn insert(&mut self, n: u64, now: Moment) {
        self.used = now;
        let after = self.ranges.partition_point(|&(first, _)| first <= n);
        if after > 0 && n <= self.ranges[after - 1].1 {
            return;
        }
        let joins_before = after > 0 && self.ranges[after - 1].1 + 1 == n;
        let joins_after = self
            .ranges
            .get(after)
            .is_some_and(|&(first, _)| n.checked_add(1) == Some(first));
        match (joins_before, joins_after) {
            (true, true) => {
                self.ranges[after - 1].1 = self.ranges[after].1;
                self.ranges.remove(after);
            }
            (true, false) => self.ranges[after - 1].1 = n,
            (false, true) => self.ranges[after].0 = n,
            (false, false) => self.ranges.insert(after, (n, n)),
        }
        if self.ranges.len() > MAX_RANGES {
            self.ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Moment {
        Moment::from_nanos(0)
    }

    #[test]
    fn neighbours_melt_together() {
        let client = ClientId::random();
        let mut gone = Gone::default();
        for n in [5, 1, 3, 4, 2, 3, u64::MAX, 0] {
            gone.insert(HolderId::new(client, n), now());
        }
        assert_eq!(gone.clients[&client].ranges, [(0, 5), (u64::MAX, u64::MAX)]);
        assert!(gone.contains(HolderId::new(client, 3)));
        assert!(!gone.contains(HolderId::new(client, 6)));
        assert!(!gone.contains(HolderId::new(ClientId::random(), 3)));
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let client = ClientId::random();
        let mut gone = Gone::default();
        for n in 0..=MAX_RANGES as u64 {
            gone.insert(HolderId::new(client, 2 * n), now());
        }
        assert!(!gone.contains(HolderId::new(client, 0)));
        assert!(gone.contains(HolderId::new(client, 2)));
        for second in 1..=MAX_CLIENTS as u64 {
            let now = Moment::from_nanos(second);
            gone.insert(HolderId::new(ClientId::random(), 0), now);
        }
        assert_eq!(gone.clients.len(), MAX_CLIENTS);
        assert!(!gone.clients.contains_key(&client));
    }
}
