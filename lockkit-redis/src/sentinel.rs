//! Sentinel: finds the present master before each connection, and ends a connection to a former one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lockkit_core::Outcome;
use lockkit_core::store::Backoff;
use redis::RedisError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::admission::refused;
use crate::config::{Address, RedisStoreBuilder};
use crate::error::of_connecting;
use crate::handshake::{self, Failure, Opened, no_connection};
use crate::reply::Reply;
use crate::subscriptions::Subscriptions;
use crate::survey::{no_answer, survey};

/// The longest pause before a connected client asks the next Sentinel.
const PAUSE: Duration = Duration::from_secs(2);

/// How long a connected client waits for the answer of one at first, and at most if none answers in that time.
const PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_PATIENCE: Duration = Duration::from_secs(4);

/// Where a Sentinel sees the master.
#[derive(Debug)]
struct Master {
    address: Address,
    /// Every failover has a larger one.
    epoch: i64,
}

enum Answer {
    Master(Master),
    /// The masters that it knows, if it does not know ours.
    Others(Vec<String>),
}

/// Makes a connection to the server or, with Sentinels, to the present master. That one ends when the
/// master has changed. `latest_epoch` is the latest failover that is known.
pub(crate) async fn open(
    config: &RedisStoreBuilder,
    subscriptions: Option<&Arc<Subscriptions>>,
    latest_epoch: &Arc<AtomicI64>,
) -> Result<Opened, Failure> {
    let Address::Sentinel { hosts, master } = &config.address else {
        return handshake::open(config, subscriptions).await;
    };
    let mut config = config.clone();
    // A third is for the Sentinels, another one for the master, and the last one for its quarantine.
    config.connect_timeout /= 3;
    let ask_all = || {
        let sentinel = |host: &Address| Sentinel::new(host, master, &config);
        hosts.iter().map(sentinel).collect()
    };
    let latest = latest_epoch.load(Ordering::Relaxed);
    let found = find(ask_all(), master, latest, config.connect_timeout).await?;
    latest_epoch.fetch_max(found.epoch, Ordering::Relaxed);
    let watched = ask_all();
    config.address = found.address.clone();
    let mut opened = handshake::open(&config, subscriptions).await?;
    let hint = ": allow the user the command `ROLE`";
    let role = timeout(config.connect_timeout, opened.ask(&["ROLE"])).await;
    let role = role.map_err(|_| no_connection(&config))?;
    let role = role.map_err(|error| refused(&config, &error, hint))?;
    expect_master(&role, &config.address)?;
    opened.epoch = found.epoch;
    let latest_epoch = Arc::clone(latest_epoch);
    opened.end_with(async move {
        let later = failed_over(watched, found.epoch).await;
        latest_epoch.fetch_max(later, Ordering::Relaxed);
    });
    Ok(opened)
}

/// Checks the reply to `ROLE`: Sentinels that lag behind name a server that is a replica now.
fn expect_master(reply: &Reply, address: &Address) -> Result<(), Failure> {
    match reply.as_list().first().and_then(Reply::as_str) {
        Some("master") => Ok(()),
        role => {
            let role = role.unwrap_or("not readable");
            let why = format!("the role of the server that Sentinels name is {role}");
            Err((Outcome::Unavailable, format!("{why} ({address})")))
        }
    }
}

/// Asks all Sentinels at once. The largest epoch wins, not the first answer. Those that do not know the latest failover
/// are believed only if no other one answers.
async fn find(
    sentinels: Vec<Sentinel>,
    name: &str,
    latest: i64,
    limit: Duration,
) -> Result<Master, Failure> {
    let majority = sentinels.len() / 2 + 1;
    let mut asked = JoinSet::new();
    for mut sentinel in sentinels {
        asked.spawn(async move { sentinel.ask().await });
    }
    let names_it = |answer: &Answer| matches!(answer, Answer::Master(it) if it.epoch >= latest);
    let (answers, mut failures) = survey(asked, majority, names_it, limit).await;
    let (mut masters, mut others) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Answer::Master(master) => masters.push(master),
            Answer::Others(names) => others.get_or_insert_with(BTreeSet::new).extend(names),
        }
    }
    let newest = masters.into_iter().max_by_key(|master| master.epoch);
    failures.extend(others.map(|others| (Outcome::Rejected, known(&others))));
    newest.ok_or_else(|| {
        let what = format!("no Sentinel names the master `{name}`");
        no_answer(&what, failures)
    })
}

/// What those know that do not know the master.
fn known(others: &BTreeSet<String>) -> String {
    let names: Vec<String> = others.iter().map(|name| format!("`{name}`")).collect();
    match &*names {
        [] => "those that answer know none".to_owned(),
        names => format!("those that answer know {}", names.join(", ")),
    }
}

/// Returns a later epoch when a Sentinel names a master with it. It may be the same one, after another that was in
/// between. One is asked after the other, so that one that is cut off does not hide a failover, and behind one that
/// does not answer the next one at once: a former master serves on for about ten seconds.
async fn failed_over(mut sentinels: Vec<Sentinel>, epoch: i64) -> i64 {
    let mut pauses = Backoff::new(PAUSE, PAUSE);
    let mut patience = PATIENCE;
    loop {
        sleep(pauses.pause()).await;
        let mut answered = None;
        for _ in 0..sentinels.len() {
            let began = Instant::now();
            let asked = timeout(patience, sentinels[0].ask()).await;
            sentinels.rotate_left(1);
            match asked {
                Ok(Ok(Answer::Master(seen))) if seen.epoch > epoch => return seen.epoch,
                Ok(Ok(_)) => {
                    answered = Some(began.elapsed());
                    break;
                }
                _ => {}
            }
        }
        patience = match answered {
            // With less than it takes, the next one would be given up.
            Some(took) => PATIENCE.max(took * 2),
            None => LONGEST_PATIENCE.min(patience * 2),
        };
    }
}

/// A Sentinel, and the connection to it while it answers.
struct Sentinel {
    config: RedisStoreBuilder,
    master: String,
    opened: Option<Opened>,
}

impl Sentinel {
    fn new(host: &Address, master: &str, config: &RedisStoreBuilder) -> Self {
        let mut config = config.clone();
        config.address = host.clone();
        config.user = config.sentinel_user.take();
        config.password = config.sentinel_password.take();
        config.database = 0;
        Self {
            config,
            master: master.to_owned(),
            opened: None,
        }
    }

    async fn ask(&mut self) -> Result<Answer, Failure> {
        let mut opened = match self.opened.take() {
            Some(opened) => opened,
            None => handshake::open(&self.config, None).await?,
        };
        let (limit, address) = (self.config.connect_timeout, &self.config.address);
        let Ok(answer) = timeout(limit, self.answer(&mut opened)).await else {
            let why = format!("no answer within {limit:?} ({address})");
            return Err((Outcome::Unavailable, why));
        };
        let answer = answer.map_err(|error| {
            let (outcome, text) = of_connecting(&error);
            let hint = match error.code() {
                Some("NOAUTH") => {
                    ": give `sentinel_password=`, and `sentinel_user=` if it has users"
                }
                Some("ERR") => ": is this a Sentinel?",
                _ => "",
            };
            (outcome, format!("{text} ({address}){hint}"))
        })?;
        self.opened = Some(opened);
        Ok(answer)
    }

    async fn answer(&self, opened: &mut Opened) -> Result<Answer, RedisError> {
        // The epoch first: if a failover comes in between, the address is newer than the epoch.
        let state = match opened.ask(&["SENTINEL", "MASTER", &self.master]).await {
            // The name is unknown, or this is no Sentinel and the next command fails, too.
            Err(error) if error.code() == Some("ERR") => {
                let all = opened.ask(&["SENTINEL", "MASTERS"]).await?;
                let name = |master| field(master, "name").and_then(Reply::as_str);
                let names = all.as_list().iter().filter_map(name);
                return Ok(Answer::Others(names.map(str::to_owned).collect()));
            }
            state => state?,
        };
        // `SENTINEL MASTER` has the former address with the new epoch while replicas are redirected.
        let address = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.master];
        let address = opened.ask(&address).await?;
        let [host, port] = address.as_list() else {
            return Ok(Answer::Others(Vec::new()));
        };
        let port = port.as_u64().and_then(|port| u16::try_from(port).ok());
        Ok(Answer::Master(Master {
            address: Address::tcp((host.as_str().unwrap_or_default(), port.unwrap_or(0))),
            epoch: field(&state, "config-epoch")
                .and_then(Reply::as_int)
                .unwrap_or(0),
        }))
    }
}

/// The value of a field in a flat list of names and values.
fn field<'a>(state: &'a Reply, name: &str) -> Option<&'a Reply> {
    let mut pairs = state.as_list().chunks_exact(2);
    let pair = pairs.find(|pair| pair[0].as_str() == Some(name))?;
    Some(&pair[1])
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A Sentinel that takes some time for each reply. It counts the connections, and the addresses that it gave.
    async fn slow_sentinel(counts: Arc<[AtomicUsize; 2]>) -> (Address, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                counts[0].fetch_add(1, Ordering::Relaxed);
                let counts = Arc::clone(&counts);
                open.spawn(async move {
                    let mut question = [0; 1024];
                    while let Ok(length @ 1..) = client.read(&mut question).await {
                        sleep(Duration::from_millis(350)).await;
                        let address = question[..length].windows(3).any(|it| it == b"GET");
                        let reply: &[u8] = match address {
                            true => b"*2\r\n$1\r\nh\r\n$4\r\n6379\r\n",
                            false => b"*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n",
                        };
                        counts[1].fetch_add(address.into(), Ordering::Relaxed);
                        client.write_all(reply).await.unwrap();
                    }
                });
            }
        });
        (Address::tcp(("127.0.0.1", address.port())), tasks)
    }

    #[tokio::test]
    async fn slow_sentinel_is_given_up_once() {
        let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let (host, _tasks) = slow_sentinel(Arc::clone(&counts)).await;
        let sentinel = Sentinel::new(&host, "m", &RedisStoreBuilder::new());
        let answered = async {
            while counts[1].load(Ordering::Relaxed) < 4 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = failed_over(vec![sentinel], 1) => panic!("there was no failover"),
            () = answered => {}
        }
        assert_eq!(counts[0].load(Ordering::Relaxed), 2);
    }
}
