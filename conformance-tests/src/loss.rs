//! The loss of a hold, as its guard sees it.

use std::time::Duration;

use lockkit_core::{FencingToken, Guard, LossReason};
use tokio::time::Instant;

use crate::failure::{Outcome, ensure};
use crate::task::{Task, spawn, within};

/// Waits for the loss: why, when, and the guard.
#[must_use]
pub fn loss_of(guard: Guard) -> Task<(LossReason, Instant, Guard)> {
    spawn(async move {
        let reason = guard.lost().await;
        (reason, Instant::now(), guard)
    })
}

/// The store has forgotten the hold: its holder learns of it with its next renewal. Returns the token.
///
/// # Errors
/// - [`Failure`](crate::Failure) if it does not, or is told another reason.
pub async fn lost(guard: Guard, soon: Duration) -> Outcome<FencingToken> {
    let (reason, _, guard) = within(soon, loss_of(guard).soon()).await??;
    let told = matches!(reason, LossReason::Superseded | LossReason::Expired);
    ensure(told, format!("lost because {reason}"))?;
    ensure(guard.check().is_err(), "a lost guard passes its check")?;
    Ok(guard.token())
}

/// The same of two guards. Returns the larger token.
///
/// # Errors
/// - As [`lost`].
pub async fn both_lost([one, other]: [Guard; 2], soon: Duration) -> Outcome<FencingToken> {
    Ok(lost(one, soon).await?.max(lost(other, soon).await?))
}

/// The token of a guard is larger than one before it.
///
/// # Errors
/// - [`Failure`](crate::Failure) if it is not.
pub fn grown(guard: &Guard, before: FencingToken) -> Outcome {
    let token = guard.token();
    ensure(token > before, format!("{token} after {before}"))
}
