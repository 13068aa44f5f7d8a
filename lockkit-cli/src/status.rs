//! `lockkit status`, `list`, `watch` and `break`: what an operator sees and does.

use std::collections::BTreeMap;

use lockkit::contract::LockState;
use nix::sys::signal::Signal;

use crate::args::{BreakArgs, Form, ListArgs, StatusArgs, StoreArgs, WatchArgs};
use crate::exit::{Code, Failure};
use crate::output::{ask, print, say};
use crate::render;
use crate::signals::Signals;
use crate::store::{failure, look, runtime};

/// What the operator has to know about a hold that was ended under its holder.
const OVERLAP: &str = "its holder may run on until its next renewal, for a third of its lease, \
                       and then for its --kill-after\n";

/// `lockkit status`.
pub(crate) fn status(args: &StatusArgs, store: &StoreArgs) -> Result<Code, Failure> {
    let (state, store) = runtime()?.block_on(async {
        let (client, place) = look(store).await?;
        let lock = client.lock(args.name.as_str()).map_err(|e| failure(&e))?;
        let state = lock.inspect().await.map_err(|e| failure(&e))?;
        Ok((state, place.label()))
    })?;
    let state = state.unwrap_or_else(|| LockState::new(args.name.clone()));
    print(&match args.form {
        Form { json: true } => render::line(&render::json(&state, &store)),
        Form { json: false } => render::details(&state, &store),
    })?;
    Ok(match state.holders.is_empty() {
        true => Code::Free,
        false => Code::Own(0),
    })
}

/// `lockkit list`.
pub(crate) fn list(args: &ListArgs, store: &StoreArgs) -> Result<Code, Failure> {
    let (states, store) = runtime()?.block_on(async {
        let (client, place) = look(store).await?;
        let states = client.list(&args.prefix).await.map_err(|e| failure(&e))?;
        Ok((states, place.label()))
    })?;
    let states: Vec<_> = by_name(states).into_values().collect();
    print(&match args.form {
        Form { json: true } => {
            let json = |state| render::json(state, &store);
            render::line(&states.iter().map(json).collect())
        }
        Form { json: false } => render::table(&states),
    })?;
    Ok(Code::Own(0))
}

/// `lockkit break`.
pub(crate) fn break_lock(args: &BreakArgs, store: &StoreArgs) -> Result<Code, Failure> {
    let runtime = runtime()?;
    let (client, place) = runtime.block_on(look(store))?;
    let lock = client.lock(args.name.as_str()).map_err(|e| failure(&e))?;
    if !args.yes {
        let state = runtime.block_on(lock.inspect()).map_err(|e| failure(&e))?;
        let what = match &state {
            Some(state) if !state.holders.is_empty() => render::sentence(state, "is"),
            _ => format!("`{}` is free", render::plain(&args.name)),
        };
        match ask(&format!("{what}. End this hold?")) {
            Some(true) => {}
            Some(false) => return Err(Failure::new(Code::Usage, "nothing was broken")),
            None => {
                let message = format!("{what}; give --yes to end this hold");
                return Err(Failure::new(Code::Usage, message));
            }
        }
    }
    let broken = runtime
        .block_on(lock.break_lock())
        .map_err(|e| failure(&e))?;
    let held = broken
        .as_ref()
        .is_some_and(|state| !state.holders.is_empty());
    let state = broken.unwrap_or_else(|| LockState::new(args.name.clone()));
    print(&match (args.form, held) {
        (Form { json: true }, _) => {
            let lock = render::json(&state, &place.label());
            render::line(&serde_json::json!({ "broken": held, "lock": lock }))
        }
        (_, true) => format!("broken: {}\n{OVERLAP}", render::sentence(&state, "was")),
        (_, false) => format!("`{}` was free\n", render::plain(&args.name)),
    })?;
    Ok(if held { Code::Own(0) } else { Code::Free })
}

/// `lockkit watch`.
pub(crate) fn watch(args: &WatchArgs, store: &StoreArgs) -> Result<Code, Failure> {
    let mut signals =
        Signals::listen().map_err(|error| Failure::from_error(Code::System, &error))?;
    runtime()?.block_on(async {
        tokio::select! {
            ended = follow(args, store) => ended,
            () = ending(&mut signals) => Ok(Code::Own(0)),
        }
    })
}

/// Somebody wants the watch to end. Stops and continues along with the terminal meanwhile.
async fn ending(signals: &mut Signals) {
    loop {
        match signals.next().await {
            Signal::SIGTSTP => crate::child::suspend(false),
            Signal::SIGCONT | Signal::SIGWINCH => {}
            _ => return,
        }
    }
}

/// Prints changes until nobody reads them. A store that does not answer for a while is said once.
async fn follow(args: &WatchArgs, store: &StoreArgs) -> Result<Code, Failure> {
    let (client, place) = look(store).await?;
    let store = place.label();
    let mut looks = tokio::time::interval(args.interval.max(render::SHORTEST_LOOK));
    let mut before: Option<BTreeMap<String, LockState>> = None;
    let mut failing = false;
    loop {
        looks.tick().await;
        let now = match client.list(&args.prefix).await {
            Ok(states) => by_name(states),
            Err(error) if before.is_none() => return Err(failure(&error)),
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    say(format_args!("{}; goes on trying", failure(&error)));
                }
                continue;
            }
        };
        failing = false;
        let at = time_of_day();
        let changes = render::changes(before.as_ref().unwrap_or(&BTreeMap::new()), &now);
        let text: String = changes
            .iter()
            .map(|change| change.text(args.form, &store, &at))
            .collect();
        if !text.is_empty() && !print(&text)? {
            return Ok(Code::Own(0));
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
