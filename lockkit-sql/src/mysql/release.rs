//! Releases.

use lockkit_core::BackendError;
use lockkit_core::contract::{Release, Ticket};

use super::error::ERRORS;
use super::server::Mysql;
use super::statements::Args;

/// `release.sql` returns it for a lease that had not ended.
const IN_TIME: u64 = 2;

impl Mysql {
    pub(super) async fn release_hold(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        if let Some(pins) = &self.pins {
            pins.released(ticket.holder);
        }
        let args = Args { ticket, session: 0 };
        for _ in 0..2 {
            let release = &self.statements.release;
            let replies = self.ask_step("release", release, args).await?;
            if let Some(reply) = replies.first().filter(|reply| reply.changed > 0) {
                return Ok(match reply.insert_id {
                    IN_TIME => Release::Released,
                    _ => Release::NotHeld,
                });
            }
            let seen = self.look_again("release", ticket).await?;
            if !seen.is_some_and(|seen| seen.mine) {
                return Ok(Release::NotHeld);
            }
        }
        Err(ERRORS.skipped("release"))
    }
}
