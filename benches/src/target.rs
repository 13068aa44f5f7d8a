//! A store that is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lockkit::LockClient;
use lockkit::url::StoreUrl;
use lockkit_proxy::Proxy;
use tokio::net::lookup_host;

use crate::bare::{self, Bare, Fact};
use crate::failure::{Failure, Outcome};
use crate::worker::Program;

/// A store of the command line: `NAME=URL`, or the URL alone.
#[derive(Clone, Debug)]
pub(crate) struct NamedUrl {
    pub(crate) label: String,
    pub(crate) url: String,
}

impl NamedUrl {
    /// Reads the words of the command line; a URL without a name is called as its scheme.
    pub(crate) fn all(words: &[String]) -> Outcome<Vec<Self>> {
        let mut places: Vec<Self> = Vec::new();
        for word in words {
            let (label, url) = match word.split_once('=') {
                Some((label, url)) if !label.contains(':') => (label, url),
                _ => (word.split(':').next().unwrap_or_default(), &**word),
            };
            let same = |place: &&Self| {
                place.label == label || place.label.starts_with(&format!("{label} #"))
            };
            let label = match places.iter().filter(same).count() {
                0 => label.to_owned(),
                count => format!("{label} #{}", count + 1),
            };
            let url = url.to_owned();
            places.push(Self { label, url });
        }
        Ok(places)
    }
}

/// A store that is open for measuring.
pub(crate) struct Target {
    pub(crate) label: String,
    /// May have a password.
    pub(crate) url: String,
    /// Has none.
    pub(crate) shown: String,
    pub(crate) client: LockClient,
    pub(crate) bare: Arc<dyn Bare>,
    pub(crate) facts: Vec<Fact>,
    /// The prefix of every name, so that the run meets no other locks.
    pub(crate) prefix: String,
    /// The program of another library, if its lock is measured.
    pub(crate) peer: Option<Program>,
    /// The label of the store that a peer is compared on.
    pub(crate) peer_on: Option<String>,
    /// The store over a distance, if there is one.
    pub(crate) far: Option<Arc<Far>>,
}

/// The same store through a proxy that delays.
pub(crate) struct Far {
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) delay: Duration,
    pub(crate) url: String,
    pub(crate) client: LockClient,
    pub(crate) bare: Arc<dyn Bare>,
}

impl Target {
    pub(crate) async fn open(
        place: &NamedUrl,
        prefix: &str,
        delay: Option<Duration>,
    ) -> Outcome<Self> {
        let shown: StoreUrl = place.url.parse()?;
        let client = lockkit::connect(&place.url).await?;
        let bare = bare::open(&place.url).await?;
        let facts = bare.facts().await?;
        let far = match delay {
            // A node of a Redlock knows the addresses of all, and takes those of proxies for another Redlock.
            Some(delay) if !shown.hosts().is_empty() && !shown.scheme().starts_with("redlock") => {
                Some(Arc::new(Far::open(&place.url, delay).await?))
            }
            _ => None,
        };
        Ok(Self {
            label: place.label.clone(),
            url: place.url.clone(),
            shown: shown.to_string(),
            client,
            bare,
            facts,
            prefix: prefix.to_owned(),
            peer: None,
            peer_on: None,
            far,
        })
    }

    /// A name that only this run uses.
    pub(crate) fn name(&self, rest: impl std::fmt::Display) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// The name of a case for this target: a peer is compared with our lock on the same store.
    pub(crate) fn case(&self, name: String) -> String {
        match &self.peer_on {
            Some(on) => format!("{on}, {name}"),
            None => name,
        }
    }

    /// Whether other processes meet the same locks.
    pub(crate) fn is_shared(&self) -> bool {
        !self.url.starts_with("memory:")
    }

    /// Whether its locks may have several holders.
    pub(crate) fn shares(&self) -> bool {
        self.client.backend().capabilities().shares
    }

    /// A lease as short as `wished`, or the shortest that a client of this store can ask for.
    pub(crate) fn lease(&self, wished: Duration) -> Duration {
        let can = self.client.backend().capabilities();
        if can.min_ttl == can.max_ttl {
            // The session has set it, and servers with default settings allow no shorter one.
            return wished.max(Duration::from_secs(4));
        }
        wished.max(can.min_ttl)
    }

    /// Removes what this run has left at the store.
    pub(crate) async fn sweep(&self) -> Outcome {
        self.client.drain().await;
        self.bare.sweep(&self.prefix).await
    }
}

impl Far {
    async fn open(url: &str, delay: Duration) -> Outcome<Self> {
        let parsed: StoreUrl = url.parse()?;
        let mut proxies = Vec::new();
        for host in parsed.hosts() {
            let port = host.port().or_else(|| port_of(parsed.scheme()));
            let port = port.ok_or_else(|| Failure::new("the URL names no port"))?;
            let mut found = lookup_host((host.name(), port)).await?;
            let server = found.next();
            let server = server.ok_or_else(|| Failure::new("a host has no address"))?;
            proxies.push(Proxy::start(server).await?);
        }
        let addresses: Vec<SocketAddr> = proxies.iter().map(Proxy::addr).collect();
        let url = with_hosts(url, &addresses);
        let client = lockkit::connect(&url).await?;
        let bare = bare::open(&url).await?;
        // After connecting, which may take many trips.
        for proxy in &proxies {
            proxy.delay_both(delay);
        }
        Ok(Self {
            proxies,
            delay,
            url,
            client,
            bare,
        })
    }

    /// The round trips of all connections so far.
    pub(crate) fn trips(&self) -> u64 {
        let each = self.proxies.iter().map(|proxy| proxy.counts().round_trips);
        each.sum()
    }
}

/// Where servers listen if a URL does not say.
fn port_of(scheme: &str) -> Option<u16> {
    match scheme {
        "redis" => Some(6379),
        "etcd" => Some(2379),
        "zk" => Some(2181),
        "postgres" => Some(5432),
        "mysql" => Some(3306),
        _ => None,
    }
}

/// The same URL with other hosts.
fn with_hosts(url: &str, hosts: &[SocketAddr]) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let user = authority
        .rsplit_once('@')
        .map_or(String::new(), |(user, _)| format!("{user}@"));
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    format!("{scheme}://{user}{}{path}", hosts.join(","))
}

/// The same URL with an option, unless it says something about that already.
pub(crate) fn with_option(url: &str, name: &str, value: &str) -> String {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let said = |option: &str| option.split('=').next() == Some(name);
    if query.split('&').any(said) {
        return url.to_owned();
    }
    let mark = if query.is_empty() { "" } else { "&" };
    format!("{place}?{query}{mark}{name}={value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_a_name_has_that_of_its_scheme() {
        let words = [
            "memory:",
            "redis://a",
            "fair=redis://b/?queue=fifo",
            "redis://c",
        ];
        let places = NamedUrl::all(&words.map(str::to_owned)).unwrap();
        let read: Vec<_> = places.iter().map(|it| (&*it.label, &*it.url)).collect();
        let expected = [
            ("memory", "memory:"),
            ("redis", "redis://a"),
            ("fair", "redis://b/?queue=fifo"),
            ("redis #2", "redis://c"),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_url_keeps_user_path_and_options_behind_a_proxy() {
        let hosts = [
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
        ];
        let url = with_hosts("zk://me:pw@h1:2181,h2/app?ttl=4s", &hosts);
        assert_eq!(url, "zk://me:pw@127.0.0.1:1,127.0.0.1:2/app?ttl=4s");
        assert_eq!(with_hosts("redis://h", &hosts[..1]), "redis://127.0.0.1:1");
    }

    #[test]
    fn an_option_is_added_once() {
        assert_eq!(with_option("file:/x", "ttl", "1s"), "file:/x?ttl=1s");
        assert_eq!(
            with_option("redis://h/?a=b", "ttl", "1s"),
            "redis://h/?a=b&ttl=1s"
        );
        assert_eq!(
            with_option("redis://h/?ttl=9s", "ttl", "1s"),
            "redis://h/?ttl=9s"
        );
    }
}
