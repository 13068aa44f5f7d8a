//! The options in a URL of several servers.

use lockkit_core::url::{InvalidUrl, StoreUrl};

use super::{NO_QUARANTINE, RedlockStore, RedlockStoreBuilder};
use crate::config::{PORT, Quarantine};
use crate::url::{address, database};

impl RedlockStoreBuilder {
    /// Reads `redlock://`, with `redlocks` for TLS. The client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `poll=5ms..100ms` | the pauses of waiters between two attempts | as shown |
    /// | `recheck=5s` | the longest time between two attempts of a waiter | as shown |
    /// | `quarantine=30s` `forever` | the longest lease, and how long a server grants nothing after it was restarted | `ttl` |
    /// | `token_ttl=7d` `never` | how long an unused token is kept | `7d` |
    /// | `connect_timeout=2s` `response_timeout=4s` | as with `redis:`, for each server | as shown |
    /// | `ca=/path.pem` `cert=/path.pem` `key=/path.pem` | `redlocks:` as with `rediss:` | none |
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let hosts = url.hosts().iter().map(|host| address(host, PORT));
        let mut this = RedlockStore::builder(hosts);
        let node = &mut this.node;
        node.take_times(url)?;
        node.take_quarantine(url)?;
        if node.quarantine == Quarantine::Off {
            return Err(InvalidUrl::bad_value("quarantine", "off", NO_QUARANTINE));
        }
        node.tls = url.tls("redlocks", cfg!(feature = "tls"))?;
        url.options.finish()?;
        node.user = url.user().map(Into::into);
        node.password = url.password().map(Into::into);
        let database = database(url);
        url.expect(
            url.hosts().len() >= 3 && url.hosts().len() % 2 == 1 && database.is_some(),
            "has three or another odd number of hosts and perhaps the number of a database: write \
             `redlock://user:password@host1,host2,host3/0`",
        )?;
        node.database = database.unwrap_or(0).into();
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> Result<RedlockStoreBuilder, InvalidUrl> {
        let mut url: StoreUrl = text.parse()?;
        RedlockStoreBuilder::from_url(&mut url)
    }

    #[test]
    fn reads_every_part_of_a_url() {
        let all = read(
            "redlock://app:p%40ss@h1,h2:7001,h3/4?poll=1ms..2ms&quarantine=10s&response_timeout=1s",
        );
        let all = all.unwrap();
        let hosts: Vec<String> = all.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["h1:6379", "h2:7001", "h3:6379"]);
        assert_eq!(all.node.password.as_deref(), Some("p@ss"));
        assert!(!format!("{all:?}").contains("p@ss"));
        assert_eq!(all.node.database, 4);
        let rules = all.capabilities();
        assert_eq!(rules.max_ttl, Duration::from_secs(10));
        assert_eq!(rules.poll.max, Duration::from_millis(2));

        let plain = read("redlock://h1,h2,h3").unwrap().capabilities();
        assert_eq!(plain.max_ttl, Duration::from_secs(30));
        assert_eq!(plain.poll.min, Duration::from_millis(5));
        let longer = read("redlock://h1,h2,h3").unwrap();
        let longer = longer.ttl(Duration::from_secs(60)).capabilities();
        assert_eq!(longer.max_ttl, Duration::from_secs(60));
        let tls = read("redlocks://h1,h2,h3?ca=/ca.pem").unwrap();
        assert!(tls.node.tls.is_some());
    }
}
