//! The options of a store in a URL.

use lockkit_core::url::{InvalidUrl, StoreUrl};

use crate::config::{EtcdStoreBuilder, PORT};
use crate::keys::Names;

impl EtcdStoreBuilder {
    /// Reads `etcd://` and `etcds://` after the options of the client were taken. The path is the prefix of all
    /// keys.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `names=encoded` `raw` | how names become keys; `raw` shares locks with `etcdctl lock` | `encoded` |
    /// | `token_base=0` | is added to every token; less than 2<sup>62</sup> | `0` |
    /// | `recheck=15s` | the longest time between two attempts of a waiter | as shown |
    /// | `connect_timeout=1s` | the longest time to connect to one server | as shown |
    /// | `request_timeout=1s` | the time without a response after which another server is asked | as shown |
    /// | `ca=/path.pem` | `etcds:` the certificates to trust instead of the system's | none |
    /// | `cert=/path.pem`, `key=/path.pem` | `etcds:` the client's certificate and its key, for servers that ask for one | none |
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let mut this = Self::new();
        this.take_behaviour(url)?;
        this.tls = url.tls("etcds", cfg!(feature = "tls"))?;
        url.options.finish()?;
        let expected = "has at least one host and perhaps a prefix of keys: write `etcd://user:password@host:2379,host:2379/locks`";
        url.expect(!url.hosts().is_empty(), expected)?;
        for host in url.hosts() {
            this = this.endpoint(host.name(), host.port().unwrap_or(PORT));
        }
        let expected =
            "has a user and a password or neither: write `etcd://user:password@host:2379`";
        this.user = url.credentials(expected)?;
        let root = url.path().strip_prefix('/').unwrap_or_default();
        let root = root.strip_suffix('/').unwrap_or(root);
        url.expect(!root.contains('\0'), "has no NUL in its prefix of keys")?;
        if !root.is_empty() {
            this.root = Some(root.to_owned());
        }
        Ok(this)
    }

    fn take_behaviour(&mut self, url: &mut StoreUrl) -> Result<(), InvalidUrl> {
        let options = &mut url.options;
        let names = [("encoded", Names::Encoded), ("raw", Names::Raw)];
        self.names = options.choice("names", &names)?.unwrap_or(self.names);
        self.token_base = options.number("token_base")?.unwrap_or(self.token_base);
        options.durations([
            ("recheck", &mut self.recheck),
            ("connect_timeout", &mut self.connect_timeout),
            ("request_timeout", &mut self.request_timeout),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockkit_core::url::Tls;

    use super::*;

    fn read(text: &str) -> Result<EtcdStoreBuilder, InvalidUrl> {
        let mut url: StoreUrl = text.parse()?;
        EtcdStoreBuilder::from_url(&mut url)
    }

    #[test]
    fn reads_every_part() {
        let plain = read("etcd://h").unwrap();
        assert_eq!(plain.endpoints, ["h:2379"]);
        assert_eq!((plain.root, plain.tls), (None, None));

        let full = read(
            "etcds://us3r:s3cret@a:1,b,[::1]:3/app/locks?names=raw&token_base=9&recheck=1s\
             &connect_timeout=2s&request_timeout=3s&ca=/ca.pem&cert=/c.pem&key=/k.pem",
        )
        .unwrap();
        assert_eq!(full.endpoints, ["a:1", "b:2379", "[::1]:3"]);
        assert_eq!(full.root.as_deref(), Some("app/locks"));
        assert_eq!(full.user, Some(("us3r".into(), "s3cret".into())));
        let shown = format!("{full:?}");
        assert!(!shown.contains("us3r") && !shown.contains("s3cret"));
        let tls = Tls::new().ca("/ca.pem").identity("/c.pem", "/k.pem");
        assert_eq!(full.tls, Some(tls));
        assert_eq!((full.names, full.token_base), (Names::Raw, 9));
        assert_eq!(full.recheck, Duration::from_secs(1));
        assert_eq!(full.connect_timeout, Duration::from_secs(2));
        assert_eq!(full.request_timeout, Duration::from_secs(3));

        assert_eq!(read("etcd://h//x/").unwrap().root.as_deref(), Some("/x"));
    }
}
