//! Many who want a lock.

use conformance_tests::figures::{bound, slow_link};
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::RedisServer;
use conformance_tests::{Outcome, ensure};
use lockkit_core::Lock;

use crate::bare::{List, Pop};
use crate::solo::{Bare, client_at, client_in_cluster, each, node_behind_a_slow_link};
use conformance_tests::contention::{Contender, SPAN, compare, contend};

/// One lock in `count` clients that have used it, each behind a slow way of its own.
async fn far_away(server: &RedisServer, count: usize) -> Outcome<(Vec<Lock>, Vec<Proxy>)> {
    let (mut locks, mut links) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let link = slow_link(server.port()).await?;
        let lock = client_at(link.addr().port()).await?.lock("crowd")?;
        lock.acquire().await?.release().await?;
        locks.push(lock);
        links.push(link);
    }
    Ok((locks, links))
}

pub(crate) async fn eight_through_the_proxy_hand_over_in_one_trip() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let (ours, links) = far_away(&server, 8).await?;
    let ports = links.iter().map(|link| link.addr().port()).collect();
    hand_over_in_one_trip(&server, ours, ports).await
}

/// All eight take the way that the node announces.
pub(crate) async fn eight_in_a_cluster_hand_over_in_one_trip() -> Outcome {
    let (node, link) = node_behind_a_slow_link().await?;
    let port = link.addr().port();
    let mut ours = Vec::new();
    for _ in 0..8 {
        let lock = client_in_cluster(port).await?.lock("crowd")?;
        lock.acquire().await?.release().await?;
        ours.push(lock);
    }
    hand_over_in_one_trip(&node, ours, vec![port; 8]).await
}

async fn hand_over_in_one_trip(server: &RedisServer, ours: Vec<Lock>, ports: Vec<u16>) -> Outcome {
    let mut bare = Vec::new();
    for port in ports {
        bare.push(Pop::connect(port).await?);
    }
    let before = server.calls("evalsha").await?;
    let ours = contend(ours, SPAN).await?;
    let scripts = each(server.calls("evalsha").await? - before, ours.total());
    Pop::ready(server).await?;
    let bare = contend(bare, SPAN).await?;
    let (rate, least, fair) = (ours.per_second(), bare.per_second(), ours.fairness());
    println!(
        "eight, 10 ms away: {rate:.1} hand-offs/s (a bare BLPOP list {least:.1}), Jain {fair:.3}, \
         {scripts:.2} EVALSHA each"
    );
    let enough = rate >= bound(0.93, 0.8) * least;
    ensure(enough, format!("{rate:.1} of {least:.1}"))?;
    ensure(fair >= 0.99, format!("Jain {fair:.3}"))?;
    ensure(scripts <= 2.2, format!("{scripts:.2} EVALSHA"))
}

pub(crate) async fn eight_and_sixty_four_keep_up_with_a_bare_list() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let mut ratios = Vec::new();
    for count in [8, 64] {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for number in 0..count {
            ours.push(client_at(server.port()).await?.lock("crowd")?);
            bare.push(List::connect(server.port(), number).await?);
        }
        let (ours, bare) = compare(ours, bare).await?;
        let (rate, least, fair) = (ours.per_second(), bare.per_second(), ours.fairness());
        let ratio = rate / least;
        println!(
            "{count}, loopback: {rate:.0} hand-offs/s (a bare list with push {least:.0}), ratio \
             {ratio:.2}, Jain {fair:.3}"
        );
        ensure(ratio >= bound(0.5, 0.15), format!("ratio {ratio:.2}"))?;
        ensure(fair >= 0.95, format!("Jain {fair:.3}"))?;
        ratios.push(ratio);
    }
    // By the list, which has slowed down as well if the machine has.
    let kept = ratios[1] / ratios[0];
    ensure(kept >= 0.5, format!("64 have {kept:.2} of the ratio of 8"))
}

pub(crate) async fn tasks_of_one_distant_client_hand_over_as_fast_as_clients() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let (mut clients, _ways) = far_away(&server, 9).await?;
    let one = clients.remove(8);
    let (tasks, clients) = compare(vec![one; 64], clients).await?;
    let (rate, least, fair) = (tasks.per_second(), clients.per_second(), tasks.fairness());
    println!(
        "64 tasks of one client, 10 ms away: {rate:.1} hand-offs/s (8 clients {least:.1}), Jain {fair:.3}"
    );
    let enough = rate >= bound(0.97, 0.8) * least;
    ensure(enough, format!("{rate:.1} of {least:.1}"))
}

pub(crate) async fn tasks_of_one_client_hand_over_as_fast_as_clients() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let mut clients: Vec<Lock> = Vec::new();
    for _ in 0..64 {
        clients.push(client_at(server.port()).await?.lock("crowd")?);
    }
    // Former waiters, whose stores still listen, must not slow it down.
    let before = contend(clients.clone(), SPAN / 4).await?;
    ensure(before.total() > 0, "no client had it")?;
    let _others = clients.split_off(8);
    let one = client_at(server.port()).await?.lock("crowd")?;
    let before = server.calls("evalsha").await?;
    let tasks = contend(vec![one.clone(); 64], SPAN / 4).await?;
    let scripts = each(server.calls("evalsha").await? - before, tasks.total());
    let (tasks, clients) = compare(vec![one; 64], clients).await?;
    let (rate, least, fair) = (tasks.per_second(), clients.per_second(), tasks.fairness());
    println!(
        "64 tasks of one client on one lock: {rate:.0} hand-offs/s (8 clients {least:.0}), Jain \
         {fair:.3}, {scripts:.2} EVALSHA each"
    );
    ensure(scripts <= 2.2, format!("{scripts:.2} EVALSHA"))?;
    let enough = rate >= bound(0.85, 0.5) * least;
    ensure(enough, format!("{rate:.0} of {least:.0}"))?;
    ensure(fair >= 0.95, format!("Jain {fair:.3}"))
}

/// The bare scripts on one shared connection.
#[derive(Clone)]
struct Shared {
    bare: std::sync::Arc<Bare>,
    name: String,
}

impl Contender for Shared {
    async fn turn(&mut self) -> Outcome {
        self.bare.cycle(&self.name).await
    }
}

pub(crate) async fn many_locks_of_one_client_share_its_connection() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let client = client_at(server.port()).await?;
    let bare = std::sync::Arc::new(Bare::connect(&server).await?);
    let (mut ours, mut least) = (Vec::new(), Vec::new());
    for number in 0..64 {
        ours.push(client.lock(format!("ours/{number}"))?);
        least.push(Shared {
            bare: std::sync::Arc::clone(&bare),
            name: format!("bare/{number}"),
        });
    }
    bare.cycle("bare").await?;
    let (ours, least) = compare(ours, least).await?;
    let (rate, most, fair) = (ours.per_second(), least.per_second(), ours.fairness());
    let ratio = rate / most;
    println!(
        "64 tasks on 64 locks: {rate:.0} cycles/s (their scripts alone {most:.0}), ratio {ratio:.2}, \
         Jain {fair:.3}"
    );
    ensure(ratio >= bound(0.8, 0.3), format!("ratio {ratio:.2}"))
}
