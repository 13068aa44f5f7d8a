//! The mutants of the store in ZooKeeper that need code of their own.

use std::sync::Arc;

use lockkit_core::contract::{Grant, Release, Renewal, Ticket};
use lockkit_core::mutants::broken;
use lockkit_core::{BackendError, FencingToken};

use crate::keys;
use crate::session::Session;
use crate::shared::Shared;
use crate::waiters::Node;

impl Shared {
    pub(crate) fn broken_grant(&self, session: &Session, node: &Node) -> Option<Grant> {
        let (token, since) = if broken("zk::SequenceAsToken") {
            let number = keys::number(node.name())?;
            let token = FencingToken::new(u64::try_from(number).ok()? + 1)?;
            (token, session.since())
        } else if broken("zk::LeaseAgeIgnored") {
            (self.token(node.czxid), session.now())
        } else {
            return None;
        };
        Some(Grant::new(token, session.lease).with_since(since))
    }

    pub(crate) async fn broken_release(
        &self,
        ticket: &Ticket,
    ) -> Option<Result<Release, BackendError>> {
        let contender = self.contender(ticket.holder);
        if broken("zk::CancelledAcquireLeavesNode") && contender?.held_path().is_none() {
            self.waiters.forget(ticket.holder);
            return Some(Ok(Release::NotHeld));
        }
        if !broken("zk::ReleaseWithoutOwnerCheck") {
            return None;
        }
        let ended = self.break_lock(&ticket.name).await;
        self.waiters.forget(ticket.holder);
        Some(ended.map(|ended| match ended {
            Some(_) => Release::Released,
            None => Release::NotHeld,
        }))
    }

    pub(crate) async fn broken_renew(
        &self,
        tickets: &[Ticket],
    ) -> Option<Vec<Result<Renewal, BackendError>>> {
        let by_follower = broken("zk::FollowerReadAsHeartbeat");
        if !by_follower && !broken("zk::KeepAliveTakenAsProof") {
            return None;
        }
        let mut answers = Vec::new();
        for ticket in tickets {
            let contender = self.contender(ticket.holder)?;
            let session = Arc::clone(&contender.session);
            let sent = session.now();
            let there = if by_follower {
                let stat = session.client.check_stat(&contender.own_path()?).await;
                stat.ok()?.is_some()
            } else {
                session.client.sync("/").await.is_ok()
            };
            answers.push(Ok(if there {
                Renewal::Renewed {
                    since: Some(sent),
                    ttl: session.lease,
                }
            } else {
                Renewal::NotHeld
            }));
        }
        Some(answers)
    }
}
