//! Which tickets were released, so that a late attempt of one makes no hold.

use std::collections::{BTreeMap, HashMap};

use crate::contract::{ClientId, HolderId};

/// Of so many clients the tickets are remembered; the one that was idle longest is forgotten.
const CLIENTS: usize = 1024;
/// So many ranges of released tickets are kept of a client. Neighbours melt together, so a client that
/// has released all its tickets costs one. A try that found the lock held leaves a gap, for it is not
/// released: at worst this is 2 MB for a client.
const RANGES: usize = 65_536;

/// The tickets that were released, in the memory of a store: a late attempt of one must not become a
/// hold that no client knows. It is bounded; the oldest tickets are forgotten first.
#[derive(Debug, Default)]
pub struct Tombstones {
    clients: HashMap<ClientId, Released>,
    inserted: u64,
}

#[derive(Debug, Default)]
struct Released {
    /// The last number of a range by its first; disjoint, not adjacent.
    ranges: BTreeMap<u64, u64>,
    /// When the last was inserted.
    used: u64,
}

impl Tombstones {
    /// Remembers a ticket.
    pub fn insert(&mut self, holder: HolderId) {
        let client = holder.client();
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            let idle = self.clients.iter().min_by_key(|(_, client)| client.used);
            if let Some((&id, _)) = idle {
                self.clients.remove(&id);
            }
        }
        self.inserted += 1;
        let released = self.clients.entry(client).or_default();
        released.used = self.inserted;
        released.insert(holder.number());
    }

    /// Whether a ticket was released.
    #[must_use]
    pub fn contains(&self, holder: HolderId) -> bool {
        let client = self.clients.get(&holder.client());
        client.is_some_and(|client| client.contains(holder.number()))
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.clients.clear();
    }
}

impl Released {
    fn contains(&self, number: u64) -> bool {
        let below = self.ranges.range(..=number).next_back();
        below.is_some_and(|(_, &last)| number <= last)
    }

    fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        if self.ranges.len() >= RANGES {
            self.ranges.pop_first();
        }
        let before = self.ranges.range(..number).next_back();
        let before = before.filter(|&(_, &last)| last + 1 == number);
        let first = before.map_or(number, |(&first, _)| first);
        let after = number.checked_add(1);
        let after = after.and_then(|after| self.ranges.remove(&after));
        self.ranges.insert(first, after.unwrap_or(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_melt_together() {
        let client = ClientId::random();
        let mut tombstones = Tombstones::default();
        for number in [5, 1, 3, 4, 2, 3, u64::MAX, 0] {
            tombstones.insert(HolderId::new(client, number));
        }
        let ranges: Vec<_> = tombstones.clients[&client].ranges.iter().collect();
        assert_eq!(ranges, [(&0, &5), (&u64::MAX, &u64::MAX)]);
        assert!(tombstones.contains(HolderId::new(client, 3)));
        assert!(!tombstones.contains(HolderId::new(client, 6)));
        assert!(!tombstones.contains(HolderId::new(ClientId::random(), 3)));
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let client = ClientId::random();
        let ticket = |number| HolderId::new(client, number);
        let mut tombstones = Tombstones::default();
        for number in 1..=RANGES as u64 {
            tombstones.insert(ticket(2 * number));
        }
        // Also the one that has just come is remembered, whatever its number.
        tombstones.insert(ticket(0));
        assert!(tombstones.contains(ticket(0)) && !tombstones.contains(ticket(2)));
        assert!(tombstones.contains(ticket(4)));
        for _ in 0..CLIENTS {
            tombstones.insert(HolderId::new(ClientId::random(), 0));
        }
        assert_eq!(tombstones.clients.len(), CLIENTS);
        assert!(!tombstones.contains(ticket(4)));
    }
}
