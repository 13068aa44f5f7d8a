//! Quarantine: a server that became the primary lately grants nothing, until every lease has ended that it may not
//! know of.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::Outcome;
use lockkit_core::clock::{BootClock, Clock as _};
use redis::RedisError;
use tokio::time::Instant;

use crate::config::RedisStoreBuilder;
use crate::error::of_connecting;
use crate::handshake::{Failure, Opened};
use crate::scripts::ADMIT;

/// What `queue.lua` reads where nothing may be granted.
const NOT_YET: &str = "-";

/// How soon to ask a server that has no slot yet, or whose lowest slot is moving.
const SOON: Duration = Duration::from_millis(250);

/// How soon to look again at a server that is asked whether its quarantine has ended.
const ASKING: Duration = Duration::from_millis(10);

/// How long a server is asked for nothing that would begin a quarantine.
const A_DAY: Duration = Duration::from_secs(86_400);

/// What a server does for the requests of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    /// When it is asked again, if it grants nothing yet: another client may have asked for a longer quarantine.
    pub(crate) again: Option<Instant>,
    /// Its replication id, by which the scripts recognise it; empty without a quarantine.
    primary: Arc<str>,
    /// Its process; empty without a quarantine.
    pub(crate) run: Arc<str>,
    /// By how much its clock is ahead of the boot clock of this machine, in microseconds, at least.
    pub(crate) ahead: i64,
}

impl Admission {
    /// Of a server that is not asked for a quarantine.
    fn unasked(again: Option<Duration>) -> Self {
        Self {
            again: again.map(|pause| Instant::now() + pause),
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
        let Some(again) = self.again else {
            return Ok(&self.primary);
        };
        let left = again.saturating_duration_since(Instant::now());
        Err(left.max(ASKING))
    }

    /// Whether the server grants nothing yet, as far as it was asked.
    pub(crate) fn is_in_quarantine(&self) -> bool {
        self.again.is_some() && !self.primary.is_empty()
    }

    /// The same for a step that ends a hold, which then passes the lock to no waiter.
    pub(crate) fn for_release(&self) -> &str {
        self.primary().unwrap_or(NOT_YET)
    }
}

/// The boot clock of this machine in microseconds.
pub(crate) fn boot_micros() -> i64 {
    i64::try_from(BootClock::default().now().as_nanos() / 1000).unwrap_or(i64::MAX)
}

/// Asks the server how long it grants nothing, and whether it can say what its replicas have. `key` is where it keeps
/// its quarantine; a master of a cluster without a slot has none, and grants nothing.
pub(crate) async fn admit(
    config: &RedisStoreBuilder,
    key: Option<&str>,
    opened: &mut Opened,
) -> Result<Admission, Failure> {
    if config.acks > 0 {
        let hint = ": this server cannot say what its replicas have; leave out `acks=`";
        let wait = redis::cmd("WAIT").arg(0).arg(1).to_owned();
        let waited = opened.run(&wait).await;
        waited.map_err(|error| refused(config, &error, hint))?;
    }
    let Some(quarantine) = config.quarantine_length() else {
        return Ok(Admission::unasked(None));
    };
    if quarantine == Duration::MAX {
        return Ok(Admission::unasked(Some(A_DAY)));
    }
    let Some(key) = key else {
        return Ok(Admission::unasked(Some(SOON)));
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
    let reply = match opened.run(&command).await {
        // The lowest slot of this master is moving, and the key of its quarantine with it.
        Err(error) if config.clustered && error.redirect_node().is_some() => {
            return Ok(Admission::unasked(Some(SOON)));
        }
        reply => reply.map_err(|error| refused(config, &error, hint))?,
    };
    let read = || {
        let [left, primary, run, clock] = reply.as_list() else {
            return None;
        };
        let left = left.as_millis()?;
        Some(Admission {
            again: (!left.is_zero()).then(|| Instant::now() + left),
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

/// Why a connection that opens is of no use. `hint`: what to do if a command is refused.
pub(crate) fn refused(config: &RedisStoreBuilder, error: &RedisError, hint: &str) -> Failure {
    let (outcome, text) = of_connecting(error);
    let hint = match error.code() {
        Some("LOCKKITMEMBERS" | "NOAUTH") => "",
        _ if outcome == Outcome::Rejected => hint,
        _ => "",
    };
    (outcome, format!("{text} ({}){hint}", config.address))
}
