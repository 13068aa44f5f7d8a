//! Quarantine: a server that became the primary lately grants nothing, until every lease has ended that it may not
//! know of.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::Outcome;
use lockkit_core::clock::{BootClock, Clock as _};
use redis::Cmd;
use tokio::time::{Instant, timeout};

use crate::config::RedisStoreBuilder;
use crate::error::of_connecting;
use crate::handshake::{Failure, Opened};
use crate::reply::Reply;
use crate::scripts::ADMIT;

/// What `queue.lua` reads where nothing may be granted.
const NOT_YET: &str = "-";

/// How soon to look again at a server to which a lock is moving.
const SOON: Duration = Duration::from_secs(1);

/// What a server does for the requests of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    /// From then on it grants locks; never if `None`.
    until: Option<Instant>,
    /// Its replication id, by which the scripts recognise it; empty without a quarantine.
    primary: Arc<str>,
    /// Its process; empty without a quarantine.
    pub(crate) run: Arc<str>,
    /// By how much its clock is ahead of the boot clock of this machine, in microseconds, at least.
    pub(crate) ahead: i64,
}

impl Admission {
    /// Of a server without a quarantine, or of one that never grants.
    fn until(moment: Option<Instant>) -> Self {
        Self {
            until: moment,
            primary: Arc::default(),
            run: Arc::default(),
            ahead: 0,
        }
    }

    /// The replication id for a step that may grant.
    ///
    /// # Errors
    /// - How much longer the server grants nothing.
    pub(crate) fn primary(&self) -> Result<&str, Duration> {
        let Some(until) = self.until else {
            return Err(SOON);
        };
        match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Err(left),
            _ => Ok(&self.primary),
        }
    }

    /// The same for a step that ends a hold, which then passes the lock to no waiter. On a node of a Redlock none has a
    /// place, so that the server is not asked whether it is still the primary.
    pub(crate) fn for_release(&self, config: &RedisStoreBuilder) -> &str {
        match config.members.is_empty() {
            true => self.primary().unwrap_or(NOT_YET),
            false => NOT_YET,
        }
    }
}

/// The boot clock of this machine in microseconds.
pub(crate) fn boot_micros() -> i64 {
    i64::try_from(BootClock::default().now().as_nanos() / 1000).unwrap_or(i64::MAX)
}

/// Asks the server how long it grants nothing, and whether it can say what its replicas have. `key` is where it keeps
/// its quarantine.
pub(crate) async fn admit(
    config: &RedisStoreBuilder,
    key: Option<&str>,
    opened: &mut Opened,
) -> Result<Admission, Failure> {
    if config.acks > 0 {
        let hint = ": this server cannot say what its replicas have; leave out `acks=`";
        let wait = redis::cmd("WAIT").arg(0).arg(1).to_owned();
        ask(config, opened, "WAIT", &wait, hint).await?;
    }
    let Some(quarantine) = config.quarantine_length() else {
        return Ok(Admission::until(Some(Instant::now())));
    };
    let Some(key) = key.filter(|_| quarantine < Duration::MAX) else {
        return Ok(Admission::until(None));
    };
    let mut command = ADMIT.on(&[key]);
    command
        .arg(quarantine.as_millis())
        .arg(&*config.members)
        .arg(opened.epoch);
    let command = ADMIT.with_text(&command);
    let hint = match config.members.is_empty() {
        true => ": allow the user `INFO`, or write `quarantine=off`",
        false => ": allow the user `INFO`",
    };
    let reply = ask(config, opened, "EVAL", &command, hint).await?;
    let read = || {
        let [left, primary, run, clock] = reply.as_list() else {
            return None;
        };
        Some(Admission {
            until: Some(Instant::now() + left.as_millis()?),
            primary: primary.as_str()?.into(),
            run: run.as_str()?.into(),
            ahead: clock.as_int()? - boot_micros(),
        })
    };
    read().ok_or_else(|| {
        let why = format!(
            "the reply about its quarantine cannot be read ({})",
            config.address
        );
        (Outcome::Rejected, why)
    })
}

/// Sends a command of a connection that opens. `hint`: what to do if it is refused.
pub(crate) async fn ask(
    config: &RedisStoreBuilder,
    opened: &mut Opened,
    name: &str,
    command: &Cmd,
    hint: &str,
) -> Result<Reply, Failure> {
    let (limit, address) = (config.connect_timeout, &config.address);
    let Ok(reply) = timeout(limit, opened.run(command)).await else {
        let why = format!("no reply to `{name}` within {limit:?} ({address})");
        return Err((Outcome::Unavailable, why));
    };
    reply.map_err(|error| {
        if config.clustered && error.redirect_node().is_some() {
            let why = format!("the lowest slot of this master is moving ({address})");
            return (Outcome::Unavailable, why);
        }
        let (outcome, text) = of_connecting(&error);
        let hint = if outcome == Outcome::Rejected && !text.starts_with("LOCKKITMEMBERS") {
            hint
        } else {
            ""
        };
        (outcome, format!("{text} ({address}){hint}"))
    })
}
