//! The options in a URL.

use std::time::Duration;

use lockkit_core::url::{Host, InvalidUrl, StoreUrl, parse_duration};
use lockkit_core::{Capabilities, Queueing, Waiting};

use crate::config::{
    Address, PORT, Protocol, Quarantine, RedisStoreBuilder, SENTINEL_PORT, TWO_DAYS, TokenTtl,
};

impl RedisStoreBuilder {
    /// Reads `redis://`, `redis+sentinel://`, `redis+cluster://`, all with `rediss` for TLS, and `redis+unix://`.
    /// The client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `queue=fifo` `barging` | the order of waiters | `fifo` |
    /// | `wake=push` `poll` | how waiters learn that the lock is free; `poll` sends no command of publish and subscribe, and its waiters have no order | `push` |
    /// | `poll=50ms..1s` | with `wake=poll`, the pauses between two attempts | as shown |
    /// | `recheck=5s` | the longest time between two attempts of a waiter, with or without messages | as shown |
    /// | `protocol=auto` `resp2` `resp3` | the protocol; with `wake=poll` always RESP2 | `auto` |
    /// | `token_ttl=7d` `never` | how long an unused token is kept | `7d` |
    /// | `quarantine=30s` `off` `forever` | the longest lease, and how long a server grants nothing after it became the primary or was restarted; with `redis+sentinel:` 5 s longer. `forever`: it grants nothing to this client, which leaves nothing behind there: for tools that only read | `ttl` with `redis+sentinel:` and `redis+cluster:`, else `off` |
    /// | `acks=1` | 0 to 9: a lease counts only when so many replicas have it | `0` |
    /// | `connect_timeout=2s` | the longest that connecting may take | as shown |
    /// | `response_timeout=4s` | the longest time without a reply: after half of it, or a quarter of the quarantine, the connection is checked, after as long again replaced | as shown |
    /// | `sentinel_user=app` `sentinel_password=..` | `redis+sentinel:` the user and the password of the Sentinels; those before the hosts are the master's | none |
    /// | `ca=/path.pem` | `rediss:` the certificates to trust instead of the system's | none |
    /// | `cert=/path.pem` `key=/path.pem` | `rediss:` the client's certificate and its key, for a server that asks for one | none |
    /// | `db=3` | `redis+unix:` the number of the database | `0` |
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let mut this = Self::new();
        this.take_behaviour(url)?;
        this.take_quarantine(url)?;
        let acks = url.options.parsed("acks", |text| match text.as_bytes() {
            [digit @ b'0'..=b'9'] => Ok(digit - b'0'),
            _ => Err("write the number of replicas, 0 to 9".to_owned()),
        })?;
        this.acks = acks.unwrap_or(this.acks);
        let unix = url.scheme() == "redis+unix";
        let sentinel = url.scheme().ends_with("+sentinel");
        let cluster = url.scheme().ends_with("+cluster");
        let secure = match (sentinel, cluster) {
            (true, _) => "rediss+sentinel",
            (_, true) => "rediss+cluster",
            _ => "rediss",
        };
        this.tls = url.tls(secure, cfg!(feature = "tls"))?;
        if sentinel {
            this.sentinel_user = url.options.text("sentinel_user");
            this.sentinel_password = url.options.text("sentinel_password");
        }
        if unix {
            let number = url.options.parsed("db", |text| {
                let number = text.parse::<u32>();
                number.map_err(|_| "write the number of a database, as `3`".to_owned())
            })?;
            this = this.database(number.unwrap_or(0));
        }
        url.options.finish()?;
        this.user = url.user().map(Into::into);
        this.password = url.password().map(Into::into);
        if unix {
            url.expect(
                url.hosts().is_empty() && url.path().starts_with('/') && url.path().len() > 1,
                "has the path of a socket and no host: write `redis+unix:///run/redis.sock`",
            )?;
            this.address = Address::Unix(url.path().into());
            return Ok(this);
        }
        if sentinel {
            return this.take_sentinels(url);
        }
        if cluster {
            url.expect(
                !url.hosts().is_empty() && url.path().trim_matches('/').is_empty(),
                "has the hosts of some nodes and no number of a database: write \
                 `redis+cluster://user:password@host1,host2,host3`",
            )?;
            return Ok(this.cluster(url.hosts().iter().map(|host| address(host, PORT))));
        }
        let expected = "has one host and perhaps the number of a database: write `redis://user:password@host:6379/0`";
        url.expect(url.hosts().len() == 1, expected)?;
        let host = &url.hosts()[0];
        let database = database(url);
        url.expect(database.is_some(), expected)?;
        this.address = Address::tcp(address(host, PORT));
        Ok(this.database(database.unwrap_or(0)))
    }

    fn take_sentinels(self, url: &StoreUrl) -> Result<Self, InvalidUrl> {
        url.expect(
            self.sentinel_user.is_none() || self.sentinel_password.is_some(),
            "has `sentinel_user` only with `sentinel_password`: write both, or only the password",
        )?;
        let (master, number) = match url.path().trim_matches('/').split_once('/') {
            Some((master, number)) => (master, number.parse().ok()),
            None => (url.path().trim_matches('/'), Some(0)),
        };
        url.expect(
            !url.hosts().is_empty() && !master.is_empty() && number.is_some(),
            "has the hosts of Sentinels, the name of their master and perhaps the number of a database: write \
             `redis+sentinel://user:password@host1,host2,host3/mymaster/0`",
        )?;
        let hosts = url.hosts().iter().map(|host| address(host, SENTINEL_PORT));
        let this = self.sentinel(hosts, master);
        Ok(this.database(number.unwrap_or(0)))
    }

    pub(crate) fn take_quarantine(&mut self, url: &mut StoreUrl) -> Result<(), InvalidUrl> {
        let read = |text: &str| match (text, parse_duration(text)) {
            ("off", _) => Ok(Quarantine::Off),
            ("forever", _) => Ok(Quarantine::For(Duration::MAX)),
            (_, Ok(length)) if length >= Capabilities::new().min_ttl => Ok(Quarantine::For(length)),
            _ => Err("write the longest lease, as `30s`, or `off` or `forever`".to_owned()),
        };
        let quarantine = url.options.parsed("quarantine", read)?;
        self.quarantine = quarantine.unwrap_or(self.quarantine);
        Ok(())
    }

    fn take_behaviour(&mut self, url: &mut StoreUrl) -> Result<(), InvalidUrl> {
        let options = &mut url.options;
        let queue = options.choice(
            "queue",
            &[("fifo", Queueing::Fifo), ("barging", Queueing::Barging)],
        )?;
        let wake = options.choice("wake", &[("push", Waiting::Push), ("poll", Waiting::Poll)])?;
        if wake == Some(Waiting::Poll) {
            if queue == Some(Queueing::Fifo) {
                let why = "leave it out: waiters that poll keep no order";
                return Err(InvalidUrl::bad_value("queue", "fifo", why));
            }
            self.waiting = Waiting::Poll;
            self.queueing = Queueing::Barging;
        }
        self.queueing = queue.unwrap_or(self.queueing);
        self.protocol = options
            .choice(
                "protocol",
                &[
                    ("auto", Protocol::Auto),
                    ("resp2", Protocol::Resp2),
                    ("resp3", Protocol::Resp3),
                ],
            )?
            .unwrap_or(self.protocol);
        self.take_times(url)
    }

    pub(crate) fn take_times(&mut self, url: &mut StoreUrl) -> Result<(), InvalidUrl> {
        let options = &mut url.options;
        self.poll = options.poll("poll")?.unwrap_or(self.poll);
        options.durations([
            ("recheck", &mut self.recheck),
            ("connect_timeout", &mut self.connect_timeout),
            ("response_timeout", &mut self.response_timeout),
        ])?;
        let read = |text: &str| match (text, parse_duration(text)) {
            ("never", _) => Ok(TokenTtl::Never),
            (_, Ok(ttl)) if ttl >= TWO_DAYS => Ok(TokenTtl::After(ttl)),
            _ => Err("write a duration of at least two days, as `7d`, or `never`".to_owned()),
        };
        self.token_ttl = options.parsed("token_ttl", read)?.unwrap_or(self.token_ttl);
        Ok(())
    }
}

/// The number of the database, which is the path; `None` if the path is something else.
pub(crate) fn database(url: &StoreUrl) -> Option<u32> {
    match url.path().trim_matches('/') {
        "" => Some(0),
        number => number.parse().ok(),
    }
}

pub(crate) fn address(host: &Host, port: u16) -> (String, u16) {
    (host.name().to_owned(), host.port().unwrap_or(port))
}

#[cfg(test)]
mod tests {
    use lockkit_core::Failover;
    use lockkit_core::url::Tls;

    use super::*;

    fn read(text: &str) -> Result<RedisStoreBuilder, InvalidUrl> {
        let mut url: StoreUrl = text.parse()?;
        RedisStoreBuilder::from_url(&mut url)
    }

    #[test]
    fn reads_every_part_of_a_url() {
        let all = read(
            "redis://app:p%40ss@h:7000/3?queue=barging&poll=1ms..2ms&recheck=1s&protocol=resp2\
             &token_ttl=never&connect_timeout=3s&response_timeout=5s",
        )
        .unwrap();
        let address = Address::Tcp {
            host: "h".into(),
            port: 7000,
        };
        assert_eq!(all.address, address);
        assert_eq!(all.user.as_deref(), Some("app"));
        assert_eq!(all.password.as_deref(), Some("p@ss"));
        assert!(!format!("{all:?}").contains("p@ss"));
        assert_eq!((all.database, all.tls), (3, None));
        assert_eq!(all.queueing, Queueing::Barging);
        assert_eq!(all.poll.max, Duration::from_millis(2));
        assert_eq!(all.recheck, Duration::from_secs(1));
        assert_eq!(all.protocol, Protocol::Resp2);
        assert_eq!(all.token_ttl, TokenTtl::Never);
        assert_eq!(all.connect_timeout, Duration::from_secs(3));
        assert_eq!(all.response_timeout, Duration::from_secs(5));

        let poll = read("rediss://h/?wake=poll&ca=/ca.pem&cert=/c.pem&key=/k.pem").unwrap();
        let tls = Tls::new().ca("/ca.pem").identity("/c.pem", "/k.pem");
        assert_eq!(poll.tls, Some(tls));
        assert_eq!(poll.capabilities().waiting, Waiting::Poll);
        assert_eq!(poll.capabilities().queueing, Queueing::Barging);

        let two = read(
            "redis+sentinel://app:p%40ss@h1,h2:7001/m/4?sentinel_password=pass2&queue=barging",
        );
        let two = two.unwrap();
        let address = "the master `m` of h1:26379, h2:7001";
        assert_eq!(two.address.to_string(), address);
        assert_eq!((two.database, two.queueing), (4, Queueing::Barging));
        assert_eq!(two.sentinel_password.as_deref(), Some("pass2"));
        assert!(!format!("{two:?}").contains("pass2"));
        assert_eq!(two.capabilities().failover, Failover::Guarded);
        let off = read("redis+cluster://h?quarantine=off").unwrap();
        assert_eq!(off.capabilities().failover, Failover::Fenced);
        assert_eq!(poll.capabilities().failover, Failover::Alone);
        let looks = read("redis+cluster://h?quarantine=forever").unwrap();
        assert_eq!(looks.quarantine_length(), Some(Duration::MAX));
        let tls = read("rediss+sentinel://h/m?ca=/ca.pem").unwrap();
        assert_eq!((tls.tls, tls.database), (Some(Tls::new().ca("/ca.pem")), 0));

        let cluster = read("redis+cluster://app:p%40ss@h1,h2:7001?acks=1").unwrap();
        let address = "the cluster of h1:6379, h2:7001";
        assert_eq!(cluster.address.to_string(), address);
        assert_eq!((cluster.acks, cluster.user.as_deref()), (1, Some("app")));
        assert_eq!(cluster.capabilities().max_ttl, cluster.ttl);
        assert!(read("rediss+cluster://h?ca=/ca.pem").unwrap().tls.is_some());

        let unix = read("redis+unix:///run/redis.sock?db=2").unwrap();
        assert_eq!(unix.address, Address::Unix("/run/redis.sock".into()));
        assert_eq!(unix.database, 2);
    }

    #[test]
    fn longest_lease_is_no_shorter_than_the_shortest() {
        let tiny = Duration::from_nanos(1);
        let all = RedisStoreBuilder::new().quarantine(tiny).capabilities();
        assert_eq!(all.max_ttl, all.min_ttl);
    }
}
