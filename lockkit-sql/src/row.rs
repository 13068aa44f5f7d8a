//! A row of the table, as it was looked at.

use std::time::Duration;

use lockkit_core::FencingToken;
use lockkit_core::contract::LockState;

use crate::keys;

/// What a row says, with times counted from the database's clock.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: Vec<u8>,
    pub(crate) holder: Option<String>,
    pub(crate) token: i64,
    /// Until the lease ends; not positive when it has ended.
    pub(crate) left: i64,
}

impl Row {
    /// The state as operators see it; `None` if the name is not one of ours.
    pub(crate) fn state(&self) -> Option<LockState> {
        let state = LockState::new(keys::name_of(&self.name)?).with_token(token(self.token));
        let Some(holder) = &self.holder else {
            return Some(state);
        };
        // A holder in words of its own is shown as it is: somebody holds by hand.
        let holder = if keys::is_ticket(holder) {
            holder.clone()
        } else {
            format!("({holder})")
        };
        let left = u64::try_from(self.left).ok();
        Some(
            state
                .with_holder(holder)
                .with_remaining(left.map(Duration::from_micros)),
        )
    }
}

/// A token as the table keeps it.
pub(crate) fn token(number: i64) -> Option<FencingToken> {
    u64::try_from(number).ok().and_then(FencingToken::new)
}
