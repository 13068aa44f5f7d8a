//! `lockkit status`, `list`, `watch` and `break`: what an operator sees and does.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkit::contract::LockState;
use lockkit::file::FileStore;
use lockkit::{Error, Lock};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::{BreakArgs, ListArgs, StatusArgs, WatchArgs};
use crate::exit::{Code, Failure};
use crate::output::{ask, print, say};
use crate::render::{self, plain};
use crate::signals::Signals;
use crate::store::{look, on_runtime};

/// What the operator has to know about a hold that was ended under its holder.
const OVERLAP: &str = "the former holder can continue until its next renewal, at most a third of its lease; a program \
                       under `lockkit run` then has its --kill-after\n";

/// The shortest time between two polls of `watch`.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

pub(crate) async fn status(args: &StatusArgs, url: Option<&str>) -> Result<Code, Failure> {
    let (client, store) = look(url, true).await?;
    let state = client.lock(args.name.as_str())?.inspect().await?;
    let state = state.unwrap_or_else(|| LockState::new(args.name.clone()));
    print(&if args.form.json {
        render::line(&render::json(&state, &store))
    } else {
        render::details(&state, &store)
    })?;
    Ok(if state.holders.is_empty() {
        Code::FREE
    } else {
        Code::OK
    })
}

pub(crate) async fn list(args: &ListArgs, url: Option<&str>) -> Result<Code, Failure> {
    let (client, store) = look(url, args.form.json).await?;
    let states = by_name(client.list(&args.prefix).await?);
    print(&if args.form.json {
        let json = |state| render::json(state, &store);
        render::line(&states.values().map(json).collect())
    } else {
        render::table(states.values())
    })?;
    if let Some(store) = client.store::<FileStore>() {
        let unreadable = store.unreadable().await.map_err(Error::from)?.len();
        if unreadable > 0 {
            let dir = plain(store.dir().display());
            say(format_args!(
                "{unreadable} of the entries of `{dir}` that are named like locks cannot be read"
            ));
        }
    }
    Ok(Code::OK)
}

pub(crate) async fn break_lock(args: &BreakArgs, url: Option<&str>) -> Result<Code, Failure> {
    let (client, store) = look(url, args.form.json).await?;
    let lock = client.lock(args.name.as_str())?;
    let broken = match args.yes {
        true => lock.break_lock().await?,
        false => break_if_confirmed(&lock).await?,
    };
    let state = broken.unwrap_or_else(|| LockState::new(args.name.clone()));
    let held = !state.holders.is_empty();
    let was = render::sentence(&state, "was");
    print(&if args.form.json {
        let lock = render::json(&state, &store);
        render::line(&serde_json::json!({ "broken": held, "lock": lock }))
    } else if held {
        format!("broken: {was}\n{OVERLAP}")
    } else {
        format!("{was}\n")
    })?;
    Ok(if held { Code::OK } else { Code::FREE })
}

/// Asks whether to end the hold that is there, and ends no other. `None` if there is none.
async fn break_if_confirmed(lock: &Lock) -> Result<Option<LockState>, Failure> {
    let held = |state: Option<LockState>| state.filter(|state| !state.holders.is_empty());
    let Some(seen) = held(lock.inspect().await?) else {
        return Ok(None);
    };
    let what = render::sentence(&seen, "is");
    let refusal = match ask(&format!("{what}. End this hold?")) {
        Some(true) => None,
        Some(false) => Some("the hold was not ended".to_owned()),
        None => Some(format!("{what}; give --yes to end this hold")),
    };
    if let Some(refusal) = refusal {
        return Err(Failure::usage(refusal));
    }
    let Some(now) = held(lock.inspect().await?) else {
        return Ok(None);
    };
    if render::ids(&now) != render::ids(&seen) {
        let what = render::sentence(&now, "is");
        let text = format!("the hold was not ended, because there is another one now: {what}");
        return Err(Failure::usage(text));
    }
    Ok(lock.break_lock().await?)
}

pub(crate) fn watch(args: &WatchArgs, url: Option<&str>) -> Result<Code, Failure> {
    let mut signals = Signals::listen()?;
    let follow = signals.interruptible(follow(args, url));
    on_runtime(|runtime| runtime.block_on(follow).unwrap_or(Ok(Code::OK)))
}

/// Prints changes until the output is closed. Reports once that a store fails for a while.
async fn follow(args: &WatchArgs, url: Option<&str>) -> Result<Code, Failure> {
    let (client, store) = look(url, args.form.json).await?;
    let mut polls = interval(args.interval.max(SHORTEST_POLL));
    // After an outage or a stop, too, it polls no more often.
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<BTreeMap<String, LockState>> = None;
    let mut failing = false;
    loop {
        polls.tick().await;
        let now = match client.list(&args.prefix).await {
            Ok(states) => by_name(states),
            Err(error) if before.is_none() => return Err(error.into()),
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    say(format_args!("{error}; retrying"));
                }
                continue;
            }
        };
        failing = false;
        let at = time_of_day();
        let mut text = String::new();
        for (event, state) in render::changes(before.as_ref().unwrap_or(&BTreeMap::new()), &now) {
            text.push_str(&if args.form.json {
                let lock = render::json(&state, &store);
                render::line(&serde_json::json!({ "at": at, "event": event, "lock": lock }))
            } else {
                format!("{at}  {event:7}  {}\n", render::sentence(&state, "is"))
            });
        }
        // A signal ends this even if the reader of the output stands still.
        let printed = spawn_blocking(move || Ok(text.is_empty() || print(&text)?)).await;
        match printed {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Ok(Code::OK),
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(Failure::new(Code::SOFTWARE, "lockkit has a bug")),
        }
        before = Some(now);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "for people, who compare it with their logs; nothing is decided by it"
)]
fn time_of_day() -> String {
    humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string()
}

fn by_name(states: Vec<LockState>) -> BTreeMap<String, LockState> {
    let named = |state: LockState| (state.name.as_str().to_owned(), state);
    states.into_iter().map(named).collect()
}
