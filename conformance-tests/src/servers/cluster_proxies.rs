//! Proxies before the nodes of a Redis Cluster, which announces their addresses.

use std::net::SocketAddr;

use super::{RedisCluster, RedisServer};
use crate::failure::{Failure, Outcome};
use crate::proxy::Proxy;
use crate::task::until;

impl RedisCluster {
    /// Starts a proxy before each node. Clients that read the map use them from now on, and so do replicas. Returns them
    /// in the order of the nodes.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started, or the nodes do not learn their addresses.
    pub async fn behind_proxies(&self) -> Outcome<Vec<Proxy>> {
        let ports = self.nodes().iter().map(RedisServer::port).collect();
        self.announce("cluster-announce-port", ports).await
    }

    /// Starts a proxy before the bus of each node, so that the nodes talk to each other through them. Returns them in
    /// the order of the nodes.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started, or the nodes do not learn their addresses.
    pub async fn buses_behind_proxies(&self) -> Outcome<Vec<Proxy>> {
        let mut ports = Vec::new();
        for node in self.nodes() {
            ports.push(bus_of(node).await?);
        }
        self.announce("cluster-announce-bus-port", ports).await
    }

    async fn announce(&self, option: &str, ports: Vec<u16>) -> Outcome<Vec<Proxy>> {
        let (mut proxies, mut announced) = (Vec::new(), Vec::new());
        for (node, port) in self.nodes().iter().zip(ports) {
            let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], port))).await?;
            let port = proxy.addr().port().to_string();
            node.ask(&["CONFIG", "SET", option, &port]).await?;
            proxies.push(proxy);
            announced.push(port);
        }
        for node in self.nodes() {
            until("all nodes know the proxies", async || {
                let nodes = node.ask(&["CLUSTER", "NODES"]).await?.concat();
                // `host:port@bus,name`
                let parts: Vec<&str> = nodes.split([' ', ':', '@', ',', '\n']).collect();
                Ok(announced.iter().all(|port| parts.contains(&port.as_str())))
            })
            .await?;
        }
        Ok(proxies)
    }
}

/// The port of the bus of a node that does not announce another one.
async fn bus_of(node: &RedisServer) -> Outcome<u16> {
    let nodes = node.ask(&["CLUSTER", "NODES"]).await?.concat();
    let own = nodes.lines().find(|line| line.contains("myself"));
    let bus = own.and_then(|line| line.split(['@', ',', ' ']).nth(2));
    let bus = bus.ok_or_else(|| Failure::new("the node does not name its bus"))?;
    Ok(bus.parse()?)
}
