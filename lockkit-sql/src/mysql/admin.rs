//! Ending a hold that somebody else has.

use std::time::Duration;

use lockkit_core::{BackendError, LockName};

use super::error::ERRORS;
use super::session::code;
use super::steps::Mysql;
use super::{SPELLING, message};
use crate::dialect::Which;
use crate::error::unclear;
use crate::statement::{Values, push_bytes};

impl Mysql {
    /// Ends a hold that was seen. The session that keeps a pinned row locked is killed, which its own
    /// user may do; then the row can be changed.
    pub(super) async fn end(
        &self,
        operation: &'static str,
        name: &LockName,
        holder: &str,
        pinned: bool,
    ) -> Result<(), BackendError> {
        let mut quoted = String::new();
        push_bytes(&mut quoted, holder.as_bytes(), SPELLING);
        let values = Values::new().name(name).text("holder", quoted.clone());
        let end = self.statements.break_lock.with(&values, SPELLING);
        // A session needs a moment to roll back.
        let (mut pause, mut killed) = (Duration::from_millis(1), false);
        let told = |error, killed| if killed { unclear(error) } else { error };
        for _ in 0..8 {
            let answers = self.ask(operation, &end).await;
            let answers = answers.map_err(|error| told(error, killed))?;
            if answers.iter().any(|answer| answer.changed > 0) {
                return Ok(());
            }
            let still = self.rows(operation, Which::Name(name)).await;
            let still = still.map_err(|error| told(error, killed))?;
            let still = still
                .iter()
                .any(|row| row.holder.as_deref() == Some(holder));
            if !still {
                return Ok(());
            }
            if pinned {
                let kill = self.kill(operation, &quoted).await;
                killed |= kill.map_err(|error| told(error, killed))?;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(told(ERRORS.skipped(operation), killed))
    }

    /// Kills the session that has the pin's user lock, if there is one; answers whether there was.
    async fn kill(&self, operation: &'static str, holder: &str) -> Result<bool, BackendError> {
        let look = format!("SELECT IS_USED_LOCK(CONVERT({holder} USING utf8mb4))");
        let answers = self.ask(operation, &look).await?;
        let row = answers.first().and_then(|answer| answer.rows.first());
        let Some(session) = row.and_then(|row| message::number(row, 0)) else {
            return Ok(false);
        };
        match self.ask(operation, &format!("KILL {session}")).await {
            // It has ended by itself.
            Err(error) if code(&error) == Some("1094") => Ok(true),
            answered => answered.map(|_| true),
        }
    }
}
