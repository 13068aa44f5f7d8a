//! The tombstones: which tickets were released, so that a late attempt of one makes no node that the
//! living session would keep.

use std::collections::{BTreeMap, HashMap, VecDeque};

use lockkit_core::{ClientId, HolderId};

/// The clients whose tombstones are kept. A store has one above it, as a rule.
const MAX_CLIENTS: usize = 64;
/// Neighbours melt together: a client that releases all its tickets costs one range.
const MAX_RANGES: usize = 4096;

/// Released tickets, bounded: what is forgotten first is what was released longest ago.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// For each client the ranges of its numbers, by their first; both ends are included.
    clients: HashMap<ClientId, BTreeMap<u64, u64>>,
    /// The clients, in the order in which they came.
    order: VecDeque<ClientId>,
}

impl Gone {
    pub(crate) fn contains(&self, holder: HolderId) -> bool {
        let ranges = self.clients.get(&holder.client());
        let below = ranges.and_then(|ranges| ranges.range(..=holder.number()).next_back());
        below.is_some_and(|(_, &last)| holder.number() <= last)
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn remove(&mut self, holder: HolderId) {
        self.clients.remove(&holder.client());
    }

    pub(crate) fn insert(&mut self, holder: HolderId) {
        if self.contains(holder) {
            return;
        }
        let (client, number) = (holder.client(), holder.number());
        let ranges = self.clients.entry(client).or_insert_with(|| {
            self.order.push_back(client);
            BTreeMap::new()
        });
        let (mut first, mut last) = (number, number);
        if let Some((&before, &end)) = ranges.range(..number).next_back()
            && end + 1 == number
        {
            first = before;
        }
        if let Some(end) = number.checked_add(1).and_then(|next| ranges.remove(&next)) {
            last = end;
        }
        ranges.insert(first, last);
        if ranges.len() > MAX_RANGES {
            ranges.pop_first();
        }
        if self.order.len() > MAX_CLIENTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.clients.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_melt_together() {
        let client = ClientId::random();
        let mut gone = Gone::default();
        for number in [5, 1, 3, 4, 2, 3, u64::MAX, 0] {
            gone.insert(HolderId::new(client, number));
        }
        let ranges: Vec<_> = gone.clients[&client].iter().collect();
        assert_eq!(ranges, [(&0, &5), (&u64::MAX, &u64::MAX)]);
        assert!(gone.contains(HolderId::new(client, 3)));
        assert!(!gone.contains(HolderId::new(client, 6)));
        assert!(!gone.contains(HolderId::new(ClientId::random(), 3)));
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let client = ClientId::random();
        let mut gone = Gone::default();
        for number in 0..=MAX_RANGES as u64 {
            gone.insert(HolderId::new(client, 2 * number));
        }
        assert!(!gone.contains(HolderId::new(client, 0)));
        assert!(gone.contains(HolderId::new(client, 2)));
        for _ in 0..MAX_CLIENTS {
            gone.insert(HolderId::new(ClientId::random(), 0));
        }
        assert_eq!(gone.clients.len(), MAX_CLIENTS);
        assert!(!gone.contains(HolderId::new(client, 2)));
    }
}
