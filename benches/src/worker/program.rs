//! The worker's side.

use std::any::Any;
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lockkit::contract::Mode;
use lockkit::{Guard, Lock, LockClient};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::task::{JoinSet, consume_budget};
use tokio::time::{Instant, sleep};

use super::contenders::{Member, turns};
use super::{ARGUMENT, Answer, Order, Role, Start};
use crate::bare::{self, Bare};
use crate::counter::Control;
use crate::failure::{Failure, Outcome};
use crate::measure::usage;
use crate::side::Side;

/// How many tasks fill a keeper at the same time.
const FILLERS: usize = 64;

/// Acts as a worker if the first argument says so; otherwise returns `None` at once.
///
/// Call it in `main`, before there is a runtime.
#[must_use]
pub fn serve() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != ARGUMENT {
        return None;
    }
    let done = tokio::runtime::Runtime::new()
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(work()));
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The process that gave the orders may be gone.
            let why = error.to_string();
            drop(say(&Answer::Failed { why }));
            ExitCode::FAILURE
        }
    })
}

type Input = Lines<BufReader<Stdin>>;

/// The next order; `None` when the process that gives them has gone.
async fn next<T: DeserializeOwned>(input: &mut Input) -> Outcome<Option<T>> {
    let Some(line) = input.next_line().await? else {
        return Ok(None);
    };
    Ok(Some(serde_json::from_str(&line)?))
}

fn say(answer: &Answer) -> Outcome {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    Ok(std::io::stdout().write_all(&line)?)
}

async fn work() -> Outcome {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let Some(start) = next::<Start>(&mut input).await? else {
        return Ok(());
    };
    match start.role {
        Role::Crowd { first, count, mode } => {
            crowd(&start, mode, first..first + count, &mut input).await
        }
        Role::Updates {
            first,
            count,
            control,
        } => updates(&start, control, first..first + count, &mut input).await,
        Role::Victim { ttl } => victim(&start, ttl, &mut input).await,
        Role::Keeper { ttl } => keeper(&start, ttl, &mut input).await,
    }
}

async fn crowd(start: &Start, mode: Mode, numbers: Range<usize>, input: &mut Input) -> Outcome {
    let mut members = others(start, numbers.len()).await?;
    let mut clients = Vec::new();
    match start.side {
        _ if !members.is_empty() => {}
        Side::Lock => {
            let one = lockkit::connect(&start.url).await?;
            let lock = lock_in(&one, &start.name, mode)?;
            members.extend(numbers.clone().map(|_| Member::Lock(lock.clone())));
            clients.push(one);
        }
        Side::Bare => {
            let bare = bare::open(&start.url).await?;
            for number in numbers.clone() {
                members.push(Member::Bare(bare.contender(&start.name, number).await?));
            }
        }
    }
    rounds(members, &clients, numbers.start, input).await
}

async fn updates(
    start: &Start,
    control: Control,
    numbers: Range<usize>,
    input: &mut Input,
) -> Outcome {
    let bare = bare::open(&start.url).await?;
    let counter = bare.counter(&start.name);
    let counter = counter.ok_or_else(|| Failure::new("the store has no sections"))?;
    let (mut members, mut clients) = (Vec::new(), Vec::new());
    for _ in numbers.clone() {
        members.push(Member::Update(match start.side {
            Side::Lock => {
                if clients.is_empty() || counter.has_room() {
                    clients.push(lockkit::connect(&start.url).await?);
                }
                let client = &clients[clients.len() - 1];
                counter.section(client.lock(&*start.name)?)
            }
            Side::Bare => counter.bare(control).await?,
        }));
    }
    rounds(members, &clients, numbers.start, input).await
}

/// Takes turns as often as it is told; `first` is the number of the first member.
async fn rounds(
    mut members: Vec<Member>,
    clients: &[LockClient],
    first: usize,
    input: &mut Input,
) -> Outcome {
    say(&Answer::Ready)?;
    while let Some(order) = next(input).await? {
        let Order::Turns { span } = order else {
            return Err(Failure::new("a crowd only takes turns"));
        };
        let answer;
        (answer, members) = turns(members, first, span).await?;
        // What was given up at the end is out of the store's queue before the others have their turn.
        for client in clients {
            client.drain().await;
        }
        say(&answer)?;
    }
    Ok(())
}

fn lock_in(client: &LockClient, name: &str, mode: Mode) -> Outcome<Lock> {
    Ok(match mode {
        Mode::Read => client.rw_lock(name)?.read(),
        Mode::Permit { of } => client.semaphore(name, of.get())?,
        _ => client.lock(name)?,
    })
}

/// The contenders with the lock of another library, if the arguments of this program name one.
#[cfg(feature = "peers")]
async fn others(start: &Start, count: usize) -> Outcome<Vec<Member>> {
    let mut members = Vec::new();
    let label = std::env::args().nth(2);
    if let Some(label) = label {
        let peer = crate::Peer::named(&label)?;
        for _ in 0..count {
            let contender = peer.contender(&start.url, &start.name).await?;
            members.push(Member::Bare(contender));
        }
    }
    Ok(members)
}

#[cfg(not(feature = "peers"))]
#[expect(clippy::unused_async, reason = "with the feature it waits")]
async fn others(_start: &Start, _count: usize) -> Outcome<Vec<Member>> {
    Ok(Vec::new())
}

/// Takes one and waits to be killed.
async fn victim(start: &Start, ttl: Duration, input: &mut Input) -> Outcome {
    let _held: Box<dyn Any + Send + Sync> = match start.side {
        Side::Lock => {
            let client = lockkit::connect(&start.url).await?;
            let guard = client.lock(&*start.name)?.acquire().await?;
            Box::new((guard, client))
        }
        Side::Bare => {
            let bare = bare::open(&start.url).await?;
            let held = bare.take(&start.name, ttl).await?;
            Box::new((held, bare))
        }
    };
    say(&Answer::Ready)?;
    // No more orders come. At the end of the input, the worker ends by itself.
    next::<Order>(input).await.map(drop)
}

/// What a keeper has.
enum Holds {
    Locks {
        client: LockClient,
        guards: Vec<Guard>,
    },
    Bare {
        bare: Arc<dyn Bare>,
        names: Vec<String>,
        held: Vec<Box<dyn Any + Send + Sync>>,
        /// Keeps them, as the client does for its holds.
        task: JoinSet<Outcome>,
    },
}

async fn keeper(start: &Start, ttl: Duration, input: &mut Input) -> Outcome {
    let mut kept = match start.side {
        Side::Lock => Holds::Locks {
            client: lockkit::connect(&start.url).await?,
            guards: Vec::new(),
        },
        Side::Bare => Holds::Bare {
            bare: bare::open(&start.url).await?,
            names: Vec::new(),
            held: Vec::new(),
            task: JoinSet::new(),
        },
    };
    say(&Answer::Ready)?;
    while let Some(order) = next(input).await? {
        let answer = match order {
            Order::Fill { count, limit } => {
                // A hold in a file is an open file; the rest of the program needs some too.
                let most = if start.url.starts_with("file:") {
                    usage::handles().saturating_sub(100)
                } else {
                    usize::MAX
                };
                let full = most < count;
                let count = count.min(most);
                let before = usage::resident()?;
                kept.fill(&start.name, count, limit, ttl).await?;
                let grown = usage::resident()?.saturating_sub(before);
                let full = full && kept.count() == count;
                let count = kept.count();
                #[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
                let bytes = grown as f64 / count.max(1) as f64;
                Answer::Filled { count, bytes, full }
            }
            Order::Window { span } => {
                let before = usage::processor();
                sleep(span).await;
                let used = usage::processor().saturating_sub(before);
                let lost = kept.lost()?;
                Answer::Window { used, lost }
            }
            Order::Turns { .. } => return Err(Failure::new("a keeper takes no turns")),
        };
        say(&answer)?;
    }
    Ok(())
}

impl Holds {
    fn count(&self) -> usize {
        match self {
            Self::Locks { guards, .. } => guards.len(),
            Self::Bare { names, .. } => names.len(),
        }
    }

    async fn fill(&mut self, name: &str, count: usize, limit: Duration, ttl: Duration) -> Outcome {
        let name = |number: usize| format!("{name}-{number}");
        let end = Instant::now() + limit;
        match self {
            Self::Locks { client, guards } => {
                let first = guards.len();
                guards.reserve(count.saturating_sub(first));
                let mut tasks = JoinSet::new();
                for part in 0..FILLERS {
                    let client = client.clone();
                    let names: Vec<_> = (first + part..count).step_by(FILLERS).map(name).collect();
                    tasks.spawn(async move {
                        let mut guards = Vec::with_capacity(names.len());
                        for name in names {
                            if Instant::now() > end {
                                break;
                            }
                            // With the client's lease, which the URL says.
                            let lock = client.lock(name)?;
                            guards.push(lock.acquire().await?);
                            // A store that is always ready must not starve the keeper.
                            consume_budget().await;
                        }
                        Outcome::Ok(guards)
                    });
                }
                while let Some(taken) = tasks.join_next().await {
                    guards.extend(taken??);
                }
            }
            Self::Bare {
                bare,
                names,
                held,
                task,
            } => {
                task.shutdown().await;
                while names.len() < count && Instant::now() < end {
                    let until = count.min(names.len() + 5000);
                    let more: Vec<_> = (names.len()..until).map(name).collect();
                    held.extend(bare.take_all(&more, ttl).await?);
                    names.extend(more);
                }
                let (bare, names) = (Arc::clone(bare), names.clone());
                task.spawn(async move {
                    // A part of them each time, as the leases of many holds are not due at once.
                    let part = names.len().div_ceil(10).max(1);
                    let pause = ttl / 30;
                    loop {
                        for names in names.chunks(part) {
                            bare.keep_all(names, ttl).await?;
                            sleep(pause).await;
                        }
                    }
                });
            }
        }
        Ok(())
    }

    /// How many are gone. The bare ones fail as a whole.
    fn lost(&mut self) -> Outcome<usize> {
        match self {
            Self::Locks { guards, .. } => {
                let gone = guards.iter().filter(|guard| guard.check().is_err());
                Ok(gone.count())
            }
            Self::Bare { task, .. } => match task.try_join_next() {
                Some(ended) => ended?.map(|()| 0),
                None => Ok(0),
            },
        }
    }
}
