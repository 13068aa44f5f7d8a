//! What is asked of nodes for one ticket: to accept it, and to release it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use lockkit_core::Outcome;
use lockkit_core::contract::Release;

use super::nodes::Nodes;
use super::quorum::{Verdict, Vote, Votes};
use super::tickets::Asked;
use crate::backend::{on_lock, refusal, who};
use crate::error::Result;
use crate::reply::Reply;
use crate::scripts::ACCEPT;

impl Nodes {
    /// Attempts a ticket at all nodes. With `raise` they accept a token also if the ticket holds there.
    pub(crate) async fn attempt(self: &Arc<Self>, asked: &Asked, raise: bool) -> (Votes, Verdict) {
        let token = self.propose();
        let ask = |at| {
            let (nodes, asked) = (Arc::clone(self), asked.clone());
            async move { (at, nodes.ask(at, &asked, token, raise).await) }
        };
        let mut votes = Votes::new(self.all.len());
        let patience = self.patience.min(asked.ticket.ttl / 10);
        let enough = |(at, vote)| {
            votes.set(at, vote);
            votes.verdict().is_some()
        };
        self.gather((0..self.all.len()).map(ask), patience, enough)
            .await;
        let verdict = votes.verdict().unwrap_or_else(|| votes.end());
        (votes, verdict)
    }

    /// Asks one node to make the ticket its holder and to accept a token for it.
    pub(crate) async fn ask(&self, at: usize, asked: &Asked, token: i64, raise: bool) -> Vote {
        let vote = self.accept(at, asked, token, raise).await;
        vote.unwrap_or_else(Vote::Failed)
    }

    async fn accept(&self, at: usize, asked: &Asked, token: i64, raise: bool) -> Result<Vote> {
        let (node, step) = (&self.all[at], &*ACCEPT);
        let admission = node.route.link.admission(step.name).await?;
        self.check_twin(step.name, at)?;
        // In quarantine it neither grants nor repairs.
        let Ok(primary) = admission.primary() else {
            return Ok(Vote::Busy);
        };
        let (ticket, link) = (&asked.ticket, &node.route.link);
        let holder = ticket.holder.to_string();
        let mut command = on_lock(link, step, &ticket.name, &holder, primary, &[]);
        command
            .arg(ticket.ttl.as_millis())
            .arg(token)
            .arg(u8::from(raise))
            .arg(who(ticket));
        let Some(sending) = asked.sent.begin(at) else {
            return Ok(Vote::Busy);
        };
        let reply = node.route.run(step, command).await;
        let holds = |reply: &Reply| matches!(reply.as_list(), [Reply::Int(1), ..]);
        match &reply {
            Err(error) if error.outcome() == Outcome::Indeterminate => {}
            reply => sending.answered(reply.as_ref().is_ok_and(holds)),
        }
        let reply = reply?;
        if let [_, _, last, clock] = reply.as_list() {
            self.seen(last);
            self.seen(clock);
        }
        match reply.as_list() {
            [Reply::Int(1), token, ..] => Ok(Vote::Own(token.as_token())),
            [Reply::Int(0), ..] => Ok(Vote::Busy),
            _ => Err(refusal(step, &ticket.name, &reply)),
        }
    }

    /// The nodes at which a ticket without a majority may have something.
    pub(crate) fn left(&self, asked: &Asked, votes: &Votes) -> Vec<usize> {
        // A reply may have come since the votes were counted.
        let may_hold = |at: &usize| votes.of(*at).is_none() || asked.sent.at(*at).may_hold();
        (0..self.all.len()).filter(may_hold).collect()
    }

    /// Releases a ticket at these nodes, and waits for those at which it holds.
    pub(crate) async fn withdraw(&self, asked: &Asked, votes: &Votes, left: Vec<usize>) {
        let holds = |at: &usize| matches!(votes.of(*at), Some(Vote::Own(_)));
        let (here, perhaps): (Vec<_>, Vec<_>) = left.into_iter().partition(holds);
        let perhaps = perhaps.into_iter().map(|at| self.release(at, asked));
        let mut perhaps = Box::pin(join_all(perhaps));
        // Written now: the process may end. Detached: each ends with its connection at the latest.
        if perhaps.as_mut().now_or_never().is_none() {
            drop(self.runtime.spawn(perhaps));
        }
        let releases = here.into_iter().map(|at| self.release(at, asked));
        self.gather(releases, self.patience, |_| false).await;
    }

    /// Releases a ticket at one node. An attempt without a reply is refused for as long as its hold would last.
    pub(crate) fn release(
        &self,
        at: usize,
        asked: &Asked,
    ) -> impl Future<Output = (usize, Result<bool>)> + Send + use<> {
        let (node, patience) = (self.all[at].clone(), self.patience);
        let Asked { ticket, sent } = asked.clone();
        let release = async move {
            let end = |lost| {
                let refuse = if lost { ticket.ttl } else { Duration::ZERO };
                node.store.end(node.route.clone(), &ticket, refuse)
            };
            let before = sent.at(at);
            let first = end(before.lost).await?;
            if before.out > 0 {
                sent.replied(at, patience).await;
            }
            let after = sent.at(at);
            let lost = after.out > 0 || after.lost;
            // The release came last, unless a reply says otherwise; of several attempts one may have come behind it.
            let missed = before.held || before.out > 1 || first == Release::NotHeld && after.held;
            if before.out == 0 || lost == before.lost && !missed {
                return Ok(first == Release::Released);
            }
            let second = end(lost).await?;
            Ok([first, second].contains(&Release::Released))
        };
        async move { (at, release.await) }
    }
}
