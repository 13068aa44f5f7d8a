//! A Redis Cluster: three masters with a replica each.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;

use super::port::{free_pair, local_hosts};
use super::{Certificates, Processes, RedisServer, free_port};
use crate::failure::{Failure, Outcome, ensure};
use crate::namespace::Server;

const MASTERS: usize = 3;

/// The first slot of each master, and a text that in braces makes a key belong to it.
const SLOTS: [(u16, &str); MASTERS] = [(0, "3560"), (5461, "18403"), (10_923, "18948")];
const LAST_SLOT: u16 = 16_383;

/// Three masters of a Redis Cluster, and a replica of each, which is promoted when its master has not replied for a
/// second.
#[derive(Debug)]
pub struct RedisCluster {
    /// The masters at the start, and then their replicas in the same order.
    nodes: Vec<RedisServer>,
    secure_ports: Vec<u16>,
}

impl RedisCluster {
    /// Starts them below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first. `words` is further configuration.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started.
    pub async fn start(words: &[String]) -> Outcome<Self> {
        Self::start_program(RedisServer::PROGRAM.as_ref(), words).await
    }

    /// Starts them with a program that is not the system's `redis-server` but understands its options.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started.
    pub async fn start_program(program: &Path, words: &[String]) -> Outcome<Self> {
        Self::start_with(program, words, None).await
    }

    /// Starts one that forgets everything when it ends, with TLS, which clients and nodes use.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn secure(certificates: &Certificates) -> Outcome<Self> {
        let words = ["--appendonly", "no", "--tls-cluster", "yes"];
        let program = RedisServer::PROGRAM.as_ref();
        Self::start_with(program, &words.map(str::to_owned), Some(certificates)).await
    }

    async fn start_with(
        program: &Path,
        words: &[String],
        certificates: Option<&Certificates>,
    ) -> Outcome<Self> {
        let (guard, version) = (std::env::current_exe()?, RedisServer::version(program)?);
        let (mut nodes, mut buses, mut secure_ports) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..2 * MASTERS {
            let of_cluster = "--cluster-enabled yes --cluster-node-timeout 1000 \
                              --cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0";
            let of_cluster = of_cluster.split(' ').map(str::to_owned);
            let mut words: Vec<String> = of_cluster.chain(words.iter().cloned()).collect();
            if let Some(certificates) = certificates {
                let port = free_port()?;
                let options = certificates.of_redis(port).into_iter();
                words.extend(options.flat_map(|[name, value]| [format!("--{name}"), value]));
                secure_ports.push(port);
            }
            let (node, bus) = start_node(&guard, program, version, &words).await?;
            nodes.push(node);
            buses.push(bus);
        }
        let cluster = Self {
            nodes,
            secure_ports,
        };
        cluster.join(&buses).await?;
        cluster.has_lost_nothing().await?;
        Ok(cluster)
    }

    /// Starts one that forgets everything when it ends.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn forgetful() -> Outcome<Self> {
        Self::start(&["--appendonly", "no"].map(str::to_owned)).await
    }

    /// Makes a cluster of single nodes.
    async fn join(&self, buses: &[u16]) -> Outcome {
        let (first, [bus, ..]) = (&self.nodes[0], buses) else {
            return Err(Failure::new("no node"));
        };
        let ends = SLOTS.iter().skip(1).map(|(first, _)| first - 1);
        let ends = ends.chain([LAST_SLOT]);
        for ((node, (slot, _)), end) in self.nodes.iter().zip(SLOTS).zip(ends) {
            // Before Redis 7 there is no command for a range.
            let slots: Vec<String> = (slot..=end).map(|slot| slot.to_string()).collect();
            let slots = slots.iter().map(String::as_str);
            let command: Vec<&str> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect();
            node.ask(&command).await?;
        }
        // The nodes know each other by the port of the connections that they make.
        let port = self.secure_ports.first().copied().unwrap_or(first.port());
        let (port, bus) = (port.to_string(), bus.to_string());
        for (number, node) in self.nodes.iter().enumerate() {
            let epoch = (number + 1).to_string();
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await?;
            if number > 0 {
                node.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])
                    .await?;
            }
        }
        for (master, replica) in self.nodes.iter().zip(&self.nodes[MASTERS..]) {
            let id = id_of(master).await?;
            let follow = || async { replica.ask(&["CLUSTER", "REPLICATE", &id]).await.map(drop) };
            // It must know the master first.
            replica.process().ready(follow).await?;
        }
        self.ready().await
    }

    /// Waits until every node is part of the whole cluster.
    ///
    /// # Errors
    /// - [`Failure`] with the end of a log if that takes too long.
    pub async fn ready(&self) -> Outcome {
        for node in &self.nodes {
            Processes::ready(node).await?;
        }
        for node in &self.nodes {
            let probe = || async {
                let info = node.ask(&["CLUSTER", "INFO"]).await?.concat();
                let ok = info.contains("cluster_state:ok")
                    && info.contains(&format!("cluster_known_nodes:{}", 2 * MASTERS));
                ensure(ok, info)?;
                let role = node.ask(&["INFO", "replication"]).await?.concat();
                let connected =
                    role.contains("master_link_status:up") || role.contains("connected_slaves:1");
                ensure(connected, role)
            };
            node.process().ready(probe).await?;
        }
        Ok(())
    }

    /// The nodes: the masters at the start, and then their replicas in the same order.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Its address as the store reads it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.hosts())
    }

    /// Its address with TLS.
    #[must_use]
    pub fn secure_url(&self) -> String {
        let hosts = local_hosts(self.secure_ports.iter().copied());
        format!("rediss+cluster://{hosts}")
    }

    /// The hosts in its URL.
    #[must_use]
    pub fn hosts(&self) -> String {
        local_hosts(self.nodes.iter().map(RedisServer::port))
    }

    /// The number of the node that is the master of a key.
    ///
    /// # Errors
    /// - [`Failure`] if there is none.
    pub async fn master_of(&self, key: &str) -> Outcome<usize> {
        self.master_at(self.slot_of(key).await?).await
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// - [`Failure`] if no node replies.
    pub async fn slot_of(&self, key: &str) -> Outcome<u16> {
        let mut failure = Failure::new("no node");
        for node in &self.nodes {
            match node.ask(&["CLUSTER", "KEYSLOT", key]).await {
                Ok(slot) => return Ok(slot.concat().parse()?),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Whether a node says that it is the master of a slot. One that does not reply does not say so.
    async fn serves(&self, node: usize, slot: u16) -> Outcome<bool> {
        let Ok(lines) = self.nodes[node].ask(&["CLUSTER", "NODES"]).await else {
            return Ok(false);
        };
        let lines = lines.concat();
        let own = lines.lines().find(|line| line.contains("myself"));
        let ranges = own.into_iter().flat_map(|line| line.split(' ').skip(8));
        for range in ranges.filter(|range| !range.starts_with('[')) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            if (first.parse()?..=last.parse()?).contains(&slot) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says on each master that it has lost nothing, so that clients with a quarantine need not wait for its end.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn has_lost_nothing(&self) -> Outcome {
        for (slot, tag) in SLOTS {
            let master = &self.nodes[self.master_at(slot).await?];
            let key = format!("lockkit_primary:{{{tag}}}");
            master.has_lost_nothing_at(&key).await?;
        }
        Ok(())
    }

    async fn master_at(&self, slot: u16) -> Outcome<usize> {
        for node in 0..self.nodes.len() {
            if self.serves(node, slot).await? {
                return Ok(node);
            }
        }
        Err(Failure::new(format!("no node serves the slot {slot}")))
    }

    /// Deletes everything.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn wipe(&self) -> Outcome {
        for (slot, _) in SLOTS {
            let master = self.master_at(slot).await?;
            self.nodes[master].ask(&["FLUSHALL"]).await?;
        }
        self.has_lost_nothing().await
    }

    /// Begins to move a slot from one master to another. Its keys stay until they are moved.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn begin_move(&self, slot: u16, [from, to]: [usize; 2]) -> Outcome {
        let (slot, [source, target]) = (slot.to_string(), [&self.nodes[from], &self.nodes[to]]);
        let (source_id, target_id) = (id_of(source).await?, id_of(target).await?);
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id];
        target.ask(&importing).await?;
        let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id];
        source.ask(&migrating).await.map(drop)
    }

    /// Moves keys of such a slot.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn move_keys(&self, keys: &[&str], [from, to]: [usize; 2]) -> Outcome {
        if keys.is_empty() {
            return Ok(());
        }
        let port = self.nodes[to].port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "1000", "KEYS"];
        self.nodes[from]
            .ask(&[&words, keys].concat())
            .await
            .map(drop)
    }

    /// Moves the keys that are left, and ends the move.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn end_move(&self, slot: u16, [from, to]: [usize; 2]) -> Outcome {
        let (number, id) = (slot.to_string(), id_of(&self.nodes[to]).await?);
        loop {
            let keys = ["CLUSTER", "GETKEYSINSLOT", &number, "100"];
            let keys = self.nodes[from].ask(&keys).await?;
            if keys.is_empty() {
                break;
            }
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            self.move_keys(&keys, [from, to]).await?;
        }
        for node in [to, from] {
            let owned = ["CLUSTER", "SETSLOT", &number, "NODE", &id];
            self.nodes[node].ask(&owned).await?;
        }
        Ok(())
    }

    /// Freezes the replica of a master. What the master does from now on is lost if the replica is promoted.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn freeze_replica(&self, master: usize) -> Outcome {
        self.nodes[partner(master)].process().stop()?;
        let kill = ["CLIENT", "KILL", "TYPE", "replica"];
        self.nodes[master].ask(&kill).await.map(drop)
    }

    /// Kills the master, lets its frozen replica run on, and waits until that one is promoted.
    ///
    /// # Errors
    /// - [`Failure`] if it is not.
    pub async fn fail_over(&self, master: usize) -> Outcome {
        self.nodes[master].process().kill();
        self.nodes[partner(master)].process().resume()?;
        self.promoted(partner(master)).await
    }

    /// Promotes the replica of a master without the last writes, and waits until the former master is its replica.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn lose_writes_and_fail_over(&self, master: usize) -> Outcome {
        self.freeze_replica(master).await?;
        sleep(Duration::from_millis(300)).await;
        self.fail_over(master).await?;
        self.nodes[master].process().restart()?;
        self.ready().await
    }

    /// Lets a master and its replica change places, without a loss.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn fail_over_as_planned(&self, master: usize) -> Outcome {
        let replica = partner(master);
        self.nodes[replica].ask(&["CLUSTER", "FAILOVER"]).await?;
        self.promoted(replica).await?;
        self.ready().await
    }

    /// Waits until a node is a master and knows that the cluster is whole.
    ///
    /// # Errors
    /// - [`Failure`] if that takes too long.
    pub async fn promoted(&self, node: usize) -> Outcome {
        let node = &self.nodes[node];
        let probe = || async {
            let role = node.ask(&["INFO", "replication"]).await?.concat();
            ensure(role.contains("role:master"), "it is a replica")?;
            let info = node.ask(&["CLUSTER", "INFO"]).await?.concat();
            ensure(info.contains("cluster_state:ok"), info)
        };
        node.process().ready(probe).await
    }
}

/// The replica of a master, and the other way round, by their places among the nodes.
#[must_use]
pub const fn partner(node: usize) -> usize {
    (node + MASTERS) % (2 * MASTERS)
}

/// Starts a node; also returns the port of its bus.
async fn start_node(
    guard: &Path,
    program: &Path,
    version: u32,
    words: &[String],
) -> Outcome<(RedisServer, u16)> {
    // Before version 7 it cannot be chosen: it is a fixed number above the other port.
    if version < 7 {
        let [port, bus] = free_pair(10_000)?;
        let node = RedisServer::start_at(port, guard, &[program.into()], words).await?;
        return Ok((node, bus));
    }
    let bus = free_port()?;
    let own = ["--cluster-port".to_owned(), bus.to_string()];
    let words = own.iter().chain(words);
    let node = RedisServer::start_program(guard, program, words).await?;
    Ok((node, bus))
}

async fn id_of(node: &RedisServer) -> Outcome<String> {
    Ok(node.ask(&["CLUSTER", "MYID"]).await?.concat())
}

#[async_trait]
impl Server for RedisCluster {
    async fn restart(&self) -> Outcome {
        let processes = || self.nodes.iter().map(RedisServer::process);
        processes().for_each(super::ServerProcess::kill);
        processes().try_for_each(super::ServerProcess::restart)?;
        self.ready().await?;
        self.has_lost_nothing().await
    }

    fn pids(&self) -> Vec<u32> {
        let nodes = self.nodes.iter();
        nodes.filter_map(|node| node.process().pid()).collect()
    }

    fn freeze(&self) -> Outcome {
        self.nodes.iter().try_for_each(|node| node.process().stop())
    }

    fn thaw(&self) -> Outcome {
        self.nodes
            .iter()
            .try_for_each(|node| node.process().resume())
    }
}
