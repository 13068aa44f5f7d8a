//! Renews tickets at all nodes, and repairs the nodes at which they do not hold.

use std::sync::Arc;

use lockkit_core::contract::{Renewal, Ticket};
use tokio::sync::oneshot;

use super::nodes::Nodes;
use super::quorum::{Count, silent};
use super::tickets::Asked;
use crate::error::Result;

type Results = Vec<Result<Renewal>>;

impl Nodes {
    /// Renews tickets at all nodes. Slow nodes are repaired, too, when this has returned.
    pub(crate) async fn renew(self: &Arc<Self>, tickets: &[Ticket]) -> Results {
        let asked = tickets.iter().map(|it| self.held(it)).collect();
        let (tell, told) = oneshot::channel();
        drop(self.runtime.spawn(Arc::clone(self).keep(asked, tell)));
        let ended = |_| vec![Err(silent("renew")); tickets.len()];
        told.await.unwrap_or_else(ended)
    }

    async fn keep(self: Arc<Self>, asked: Vec<Asked>, tell: oneshot::Sender<Results>) {
        let tickets: Arc<[Ticket]> = asked.iter().map(|it| it.ticket.clone()).collect();
        let renewals = (0..self.all.len()).map(|at| {
            let (node, tickets) = (self.all[at].store.clone(), Arc::clone(&tickets));
            let alone = self.check_twin("renew", at);
            async move {
                let results = match alone {
                    Ok(()) => node.renew_all(&tickets).await,
                    Err(twin) => vec![Err(twin); tickets.len()],
                };
                (at, results)
            }
        });
        let mut counts = vec![Count::new("renew", self.all.len()); asked.len()];
        let (mut lacking, mut tell) = (Vec::new(), Some(tell));
        let mut tell = |counts: &[Count]| {
            let counted = counts.iter().zip(&*tickets);
            if let Some(tell) = tell.take() {
                let _ = tell.send(counted.map(result).collect());
            }
        };
        let take = |(at, results): (usize, Results)| {
            for (which, result) in results.into_iter().enumerate() {
                let renewed = result.map(|it| it != Renewal::NotHeld);
                if matches!(renewed, Ok(false)) {
                    lacking.push((at, which));
                }
                counts[which].add(renewed);
            }
            if counts.iter().all(|count| count.decided().is_some()) {
                tell(&counts);
            }
            false
        };
        let shortest = tickets.iter().map(|ticket| ticket.ttl).min();
        let patience = self.patience.min(shortest.unwrap_or_default() / 8);
        self.gather(renewals, patience, take).await;
        tell(&counts);
        // Only beside a majority: a renewal makes no hold.
        lacking.retain(|(_, which)| counts[*which].decided() == Some(true));
        let token = self.propose();
        let repairs = lacking.into_iter().map(|(at, which)| {
            let (nodes, asked) = (Arc::clone(&self), asked[which].clone());
            async move { nodes.ask(at, &asked, token, false).await }
        });
        self.gather(repairs, self.patience, |_| false).await;
    }
}

fn result((count, ticket): (&Count, &Ticket)) -> Result<Renewal> {
    match count.clone().end()? {
        true => Ok(Renewal::renewed(ticket.ttl)),
        false => Ok(Renewal::NotHeld),
    }
}
