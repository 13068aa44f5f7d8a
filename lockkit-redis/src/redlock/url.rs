//! The options in a URL of several servers.

use lockkit_core::url::{Host, InvalidUrl, StoreUrl};

use super::{NO_QUARANTINE, RedlockStore, RedlockStoreBuilder};
use crate::config::{PORT, Quarantine};

impl RedlockStoreBuilder {
    /// Reads `redlock://`, with `redlocks` for TLS. The client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `poll=5ms..100ms` | the pauses of waiters between two attempts | as shown |
    /// | `recheck=5s` | the longest time between two attempts of a waiter | as shown |
    /// | `quarantine=30s` | the longest lease, and how long a server grants nothing after it was restarted | `ttl` |
    /// | `token_ttl=7d` `never` | how long an unused token is kept | `7d` |
    /// | `connect_timeout=2s` `response_timeout=4s` | as with `redis:`, for each server | as shown |
    /// | `ca=/path.pem` `cert=/path.pem` `key=/path.pem` | `redlocks:` as with `rediss:` | none |
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let host = |host: &Host| (host.name().to_owned(), host.port().unwrap_or(PORT));
        let mut this = RedlockStore::builder(url.hosts().iter().map(host));
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
        let database = match url.path().trim_matches('/') {
            "" => Ok(0),
            number => number.parse::<u32>(),
        };
        url.expect(
            url.hosts().len() >= 3 && url.hosts().len() % 2 == 1 && database.is_ok(),
            "has three or another odd number of hosts and perhaps the number of a database: write \
             `redlock://user:password@host1,host2,host3/0`",
        )?;
        node.database = database.unwrap_or(0).into();
        Ok(this)
    }
}
