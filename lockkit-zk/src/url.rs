//! The options in a URL.

use lockkit_core::url::{InvalidUrl, StoreUrl};

use crate::config::{Access, Auth, Dialect, Names, PORT, ZkStoreBuilder};

impl ZkStoreBuilder {
    /// Reads `zk://` and `zks://`. The client options were taken before, and the caller sets the session
    /// to the client's `ttl`.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `root=/locks` | the node that contains the locks, inside the chroot | as shown |
    /// | `names=encoded` `raw` | whether `/` in a name is encoded, or makes a path as in Curator | `encoded` |
    /// | `dialect=curator` `kazoo` | how our nodes are named | `curator` |
    /// | `recheck=15s` | the longest time between two attempts of a waiter | as shown |
    /// | `token_base=1000` | a number that is added to every token; less than 2<sup>62</sup> | `0` |
    /// | `connect_timeout=5s` | the longest that connecting may take | as shown |
    /// | `auth=digest` `sasl` | how the user of the URL authenticates; `sasl` needs the feature `sasl` of `lockkit-zk` | `digest` |
    /// | `acl=anyone` `creator` | who may read and change our nodes | `creator` with a user, else `anyone` |
    /// | `ca=/ca.pem` | `zks:` the certificates to trust; needed | |
    /// | `cert=/me.pem`, `key=/me.key` | `zks:` the client's certificate | none |
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let mut this = Self::new();
        this.take_behaviour(url)?;
        this.take_identity(url)?;
        this.tls = url.tls("zks", cfg!(feature = "tls"))?;
        let trusts = this.tls.as_ref().is_none_or(|tls| tls.trusted().is_some());
        let needed = "needs the certificates to trust: write `zks://host/?ca=/path/to/ca.pem`";
        url.expect(trusts, needed)?;
        url.options.finish()?;
        let expected = "has the members of the ensemble, and perhaps a chroot: write `zk://host1,host2:2181/chroot`";
        url.expect(!url.hosts().is_empty(), expected)?;
        for host in url.hosts() {
            this = this.host(host.name(), host.port().unwrap_or(PORT));
        }
        this.chroot = url.path().trim_end_matches('/').to_owned();
        url.expect(is_path(&this.chroot), expected)?;
        Ok(this)
    }

    fn take_behaviour(&mut self, url: &mut StoreUrl) -> Result<(), InvalidUrl> {
        let options = &mut url.options;
        if let Some(root) = options.text("root") {
            if !root.starts_with('/') || !is_path(root.trim_end_matches('/')) {
                let why = "write a path as `/locks`";
                return Err(InvalidUrl::bad_value("root", &root, why));
            }
            self.root = root;
        }
        let names = [("encoded", Names::Encoded), ("raw", Names::Raw)];
        self.names = options.choice("names", &names)?.unwrap_or(self.names);
        let dialects = [("curator", Dialect::Curator), ("kazoo", Dialect::Kazoo)];
        self.dialect = options
            .choice("dialect", &dialects)?
            .unwrap_or(self.dialect);
        self.token_base = options.number("token_base")?.unwrap_or(self.token_base);
        options.durations([
            ("recheck", &mut self.recheck),
            ("connect_timeout", &mut self.connect_timeout),
        ])?;
        Ok(())
    }

    fn take_identity(&mut self, url: &mut StoreUrl) -> Result<(), InvalidUrl> {
        self.auth = url.options.parsed("auth", auth)?.unwrap_or(self.auth);
        let who = [("anyone", Access::Anyone), ("creator", Access::Creator)];
        self.access = url.options.choice("acl", &who)?;
        let both = "has a user and a password, or neither: write `zk://user:password@host`";
        self.user = url.credentials(both)?;
        if self.auth != Auth::Digest && self.user.is_none() {
            let why = "there is no authentication without a user: write `zk://user:password@host`";
            return Err(InvalidUrl::bad_value("auth", "sasl", why));
        }
        if self.access == Some(Access::Creator) && self.user.is_none() {
            let why = "there is no creator without a user: write `zk://user:password@host`";
            return Err(InvalidUrl::bad_value("acl", "creator", why));
        }
        Ok(())
    }
}

/// How a user authenticates.
fn auth(text: &str) -> Result<Auth, String> {
    match text {
        "digest" => Ok(Auth::Digest),
        #[cfg(feature = "sasl")]
        "sasl" => Ok(Auth::Sasl),
        #[cfg(not(feature = "sasl"))]
        "sasl" => {
            Err("enable the feature `sasl` of the crate `lockkit-zk` in Cargo.toml".to_owned())
        }
        _ => Err("write `digest` or `sasl`".to_owned()),
    }
}

/// Whether the server accepts all segments of a path without a slash at its end.
fn is_path(path: &str) -> bool {
    let mut segments = path.split('/');
    segments.next() == Some("") && segments.all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[cfg(feature = "tls")]
    use lockkit_core::url::Tls;

    use super::*;

    fn read(text: &str) -> Result<ZkStoreBuilder, InvalidUrl> {
        let mut url: StoreUrl = text.parse()?;
        ZkStoreBuilder::from_url(&mut url)
    }

    #[test]
    fn reads_all_parts_of_a_url() {
        let all = read(
            "zk://app:p%40ss@a,b:7000,[::1]:7001/shop/eu?root=/x/y&names=raw&dialect=kazoo\
             &recheck=1s&token_base=7&connect_timeout=2s&auth=digest&acl=anyone",
        )
        .unwrap();
        assert_eq!(all.hosts, ["a:2181", "b:7000", "[::1]:7001"]);
        assert_eq!((&*all.chroot, &*all.root), ("/shop/eu", "/x/y"));
        assert_eq!((all.names, all.dialect), (Names::Raw, Dialect::Kazoo));
        assert_eq!((all.recheck, all.token_base), (Duration::from_secs(1), 7));
        assert_eq!(all.connect_timeout, Duration::from_secs(2));
        assert_eq!(all.user, Some(("app".into(), "p@ss".into())));
        assert!(!format!("{all:?}").contains("p@ss"));
        assert_eq!(all.who_may(), Access::Anyone);

        let plain = read("zk://h/").unwrap();
        assert_eq!((&*plain.chroot, &*plain.root), ("", "/locks"));
        assert_eq!(plain.who_may(), Access::Anyone);
        assert_eq!(read("zk://u:p@h").unwrap().who_may(), Access::Creator);
    }

    #[cfg(feature = "sasl")]
    #[test]
    fn sasl_needs_a_user() {
        assert_eq!(read("zk://u:p@h/?auth=sasl").unwrap().auth, Auth::Sasl);
        let refused = read("zk://h/?auth=sasl").unwrap_err().to_string();
        assert!(refused.contains("zk://user:password@host"), "{refused}");
    }

    #[cfg(not(feature = "sasl"))]
    #[test]
    fn sasl_names_its_feature() {
        let refused = read("zk://u:p@h/?auth=sasl").unwrap_err().to_string();
        assert!(refused.contains("feature `sasl`"), "{refused}");
    }

    #[test]
    fn unknown_way_to_authenticate_names_those_there_are() {
        let refused = read("zk://u:p@h/?auth=x509").unwrap_err().to_string();
        assert!(refused.contains("`digest` or `sasl`"), "{refused}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_needs_certificates_to_trust() {
        let tls = read("zks://h/?ca=/ca.pem&cert=/me.pem&key=/me.key").unwrap();
        let expected = Tls::new().ca("/ca.pem").identity("/me.pem", "/me.key");
        assert_eq!(tls.tls, Some(expected));
        assert!(read("zks://h/").is_err());
        assert!(read("zks://h/?ca=/ca.pem&cert=/me.pem").is_err());
        assert_eq!(read("zk://h/").unwrap().tls, None);
        assert!(read("zk://h/?ca=/ca.pem").is_err());
    }
}
