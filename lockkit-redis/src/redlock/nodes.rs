//! The nodes of a store, and what is asked of all of them at once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lockkit_core::contract::{Release, Renewal, Ticket};
use lockkit_core::{BackendError, Capabilities, Outcome};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::node::Node;
use super::quorum::{BACKEND, Count, Verdict, Vote, Votes, failure, majority, silent};
use super::tickets::{Sent, Tickets};
use crate::admission::{Admission, boot_micros};
use crate::backend::{on_lock, who, wrong_type};
use crate::connection::State;
use crate::reply::{Reply, unreadable};
use crate::scripts::STEPS;

/// How long opening waits for the other nodes, once it has a majority: their lists may differ from ours.
const OTHERS: Duration = Duration::from_millis(200);
const TWINS: &str = "two names in the list lead to one server, which would count twice";

pub(crate) struct Nodes {
    pub(crate) all: Vec<Node>,
    pub(crate) rules: Capabilities,
    /// The longest that nodes are waited for.
    pub(crate) patience: Duration,
    pub(crate) tickets: Tickets,
    /// By how much the largest clock or token of any node is ahead of the boot clock, in microseconds.
    ahead: AtomicI64,
    runtime: Handle,
}

impl Nodes {
    /// Waits for a majority, and a little for the others.
    pub(crate) async fn open(
        all: Vec<Node>,
        rules: Capabilities,
        patience: Duration,
        runtime: Handle,
    ) -> Result<Self, BackendError> {
        let needed = majority(all.len());
        let admissions = all.iter().map(|node| node.route.link.admission("connect"));
        let mut opening: FuturesUnordered<_> = admissions.collect();
        let (mut open, mut errors) = (Vec::<Admission>::new(), Vec::new());
        while open.len() + opening.len() >= needed {
            let limit = match open.len() >= needed {
                true => OTHERS,
                false => Duration::MAX,
            };
            match timeout(limit, opening.next()).await {
                Ok(Some(Ok(admission))) => open.push(admission),
                Ok(Some(Err(error))) if error.outcome() == Outcome::Rejected => return Err(error),
                Ok(Some(Err(error))) => errors.push(error),
                Ok(None) | Err(_) => break,
            }
        }
        drop(opening);
        if open.len() < needed {
            return Err(failure("connect", all.len(), errors));
        }
        let twin = |(at, one): (usize, &Admission)| open[..at].iter().any(|it| it.run == one.run);
        if open.iter().enumerate().any(twin) {
            return Err(twins("connect"));
        }
        let ahead = open.iter().map(|admission| admission.ahead).max();
        Ok(Self {
            all,
            rules,
            patience,
            tickets: Tickets::default(),
            ahead: AtomicI64::new(ahead.unwrap_or(0)),
            runtime,
        })
    }

    /// Fails if a node before this one is the same server.
    fn check_twin(&self, operation: &'static str, at: usize) -> Result<(), BackendError> {
        let run = |node: &Node| match &*node.route.link.state.borrow() {
            State::Up(_, admission) => Some(Arc::clone(&admission.run)),
            _ => None,
        };
        let own = run(&self.all[at]);
        let is_twin = own.is_some() && self.all[..at].iter().any(|node| run(node) == own);
        if is_twin {
            return Err(twins(operation));
        }
        Ok(())
    }

    /// A token that is larger than all that this store has seen.
    fn propose(&self) -> i64 {
        let ahead = self.ahead.load(Ordering::Relaxed);
        ahead.saturating_add(boot_micros()).saturating_add(1)
    }

    /// A clock or a token of a node. The reply has taken some time, so that the clock is ahead by more.
    fn seen(&self, clock: &Reply) {
        if let Some(clock) = clock.as_int() {
            let ahead = clock.saturating_sub(boot_micros());
            self.ahead.fetch_max(ahead, Ordering::Relaxed);
        }
    }

    /// Asks one node to make the ticket its holder and to accept a token for it.
    async fn ask(
        &self,
        at: usize,
        asked: &Ticket,
        sent: &Arc<Sent>,
        token: i64,
        raise: bool,
    ) -> Vote {
        let vote = self.accept(at, asked, sent, token, raise).await;
        vote.unwrap_or_else(Vote::Failed)
    }

    async fn accept(
        &self,
        at: usize,
        asked: &Ticket,
        sent: &Arc<Sent>,
        token: i64,
        raise: bool,
    ) -> Result<Vote, BackendError> {
        let (node, step) = (&self.all[at], &STEPS.accept);
        let admission = node.route.link.admission(step.name).await?;
        self.check_twin(step.name, at)?;
        // In quarantine it neither grants nor repairs.
        let Ok(primary) = admission.primary() else {
            return Ok(Vote::Busy);
        };
        let mut command = on_lock(
            &node.route.link,
            step,
            &asked.name,
            &asked.holder.to_string(),
            primary,
        );
        command
            .arg(asked.ttl.as_millis())
            .arg(token)
            .arg(u8::from(raise))
            .arg(who(asked));
        let Some(sending) = sent.begin(at, &node.route.link) else {
            return Ok(Vote::Busy);
        };
        let reply = node.route.run(step, command).await;
        let unknown = |error: &BackendError| error.outcome() == Outcome::Indeterminate;
        if !reply.as_ref().is_err_and(unknown) {
            sending.answered();
        }
        let reply = reply?;
        if let [_, _, last, clock] = reply.as_list() {
            self.seen(last);
            self.seen(clock);
        }
        match reply.as_list() {
            [Reply::Int(1), token, ..] => Ok(Vote::Own(token.as_token())),
            [Reply::Int(0), ..] => Ok(Vote::Busy),
            [Reply::Int(-1)] => Err(refused(step.name, "the ticket was released before")),
            [Reply::Int(-2), kind] => {
                let kind = kind.as_str().unwrap_or("unknown");
                Err(wrong_type(step, &asked.name, kind))
            }
            _ => Err(unreadable(step.name)),
        }
    }

    /// Attempts a ticket at all nodes. With `raise` they accept a token also if the ticket holds there.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        asked: &Ticket,
        sent: &Arc<Sent>,
        raise: bool,
    ) -> (Votes, Verdict) {
        let token = self.propose();
        let ask = |at| {
            let (nodes, asked, sent) = (Arc::clone(self), asked.clone(), Arc::clone(sent));
            async move { (at, nodes.ask(at, &asked, &sent, token, raise).await) }
        };
        let mut votes = Votes::new(self.all.len());
        let patience = self.patience.min(asked.ttl / 10);
        let enough = |(at, vote)| {
            votes.set(at, vote);
            votes.verdict().is_some()
        };
        let requests = (0..self.all.len()).map(ask);
        self.gather(requests, patience, enough).await;
        let verdict = votes.verdict().unwrap_or_else(|| votes.end());
        (votes, verdict)
    }

    /// Ends what a ticket without a majority may have at nodes. Returns whether there may be something.
    pub(crate) async fn withdraw(
        &self,
        ticket: &Ticket,
        (asked, sent, attempt): &(Ticket, Arc<Sent>, u64),
        votes: &Votes,
    ) -> bool {
        let holds = |at: usize| matches!(votes.of(at), Some(Vote::Own(_)));
        // A reply may have come since the votes were counted.
        let may_hold = |at: &usize| match votes.of(*at) {
            Some(Vote::Own(_)) | None => true,
            Some(_) => sent.is_out(*at) || sent.is_lost(*at),
        };
        let left: Vec<usize> = (0..self.all.len()).filter(may_hold).collect();
        if left.is_empty() {
            return false;
        }
        if !self.tickets.withdrawn(ticket, *attempt, self.all.len()) {
            return true;
        }
        let mut awaited = left.iter().filter(|at| holds(**at)).count();
        let patience = match awaited {
            0 => Duration::ZERO,
            _ => self.patience,
        };
        let releases = left.into_iter().map(|at| self.release(at, asked, sent));
        let enough = |(at, _)| {
            awaited -= usize::from(holds(at));
            awaited == 0
        };
        self.gather(releases, patience, enough).await;
        true
    }

    /// Releases a ticket at one node. An attempt without a reply is refused for as long as its hold would last.
    pub(crate) fn release(
        &self,
        at: usize,
        asked: &Ticket,
        sent: &Arc<Sent>,
    ) -> impl Future<Output = (usize, Result<bool, BackendError>)> + Send + use<> {
        let (node, patience) = (self.all[at].clone(), self.patience);
        let (asked, sent) = (asked.clone(), Arc::clone(sent));
        let release = async move {
            let refuse = |lost| if lost { asked.ttl } else { Duration::ZERO };
            let (was_out, was_lost) = (sent.is_out(at), sent.is_lost(at));
            let first = node
                .store
                .end(node.route.clone(), &asked, refuse(was_lost))
                .await?;
            if was_out {
                sent.replied(at, patience).await;
            }
            let lost = sent.is_out(at) || sent.is_lost(at);
            // The server does requests in order, unless the connection has ended or a script was unknown.
            let in_order = lost == was_lost && !sent.was_rewritten(at, &node.route.link);
            if !was_out || in_order {
                return Ok(first == Release::Released);
            }
            let second = node
                .store
                .end(node.route.clone(), &asked, refuse(lost))
                .await?;
            Ok([first, second].contains(&Release::Released))
        };
        async move { (at, release.await) }
    }

    /// Renews tickets at all nodes.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        tickets: &[Ticket],
    ) -> Vec<Result<Renewal, BackendError>> {
        let held = tickets.iter().map(|it| self.tickets.held(it));
        let (asked, sent): (Vec<_>, Vec<_>) = held.unzip();
        let (tell, told) = oneshot::channel();
        // Slow nodes are repaired, too, when this has returned.
        let kept = Arc::clone(self).keep(asked.into(), sent, tell);
        drop(self.runtime.spawn(kept));
        let ended = |_| vec![Err(silent("renew")); tickets.len()];
        told.await.unwrap_or_else(ended)
    }

    async fn keep(
        self: Arc<Self>,
        asked: Arc<[Ticket]>,
        sent: Vec<Option<Arc<Sent>>>,
        tell: oneshot::Sender<Vec<Result<Renewal, BackendError>>>,
    ) {
        let renew = |(at, node): (usize, &Node)| {
            let (node, asked) = (node.clone(), Arc::clone(&asked));
            let alone = self.check_twin("renew", at);
            async move {
                let results = match alone {
                    Ok(()) => node.store.renew_all(&asked).await,
                    Err(twin) => vec![Err(twin); asked.len()],
                };
                (at, results)
            }
        };
        let renewals = self.all.iter().enumerate().map(renew);
        let mut counts = vec![Count::new("renew", self.all.len()); asked.len()];
        let (mut lacking, mut tell) = (Vec::new(), Some(tell));
        let results = |counts: &[Count]| {
            let result = |(count, ticket): (&Count, &Ticket)| match count.clone().end()? {
                true => Ok(Renewal::renewed(ticket.ttl)),
                false => Ok(Renewal::NotHeld),
            };
            counts.iter().zip(&*asked).map(result).collect()
        };
        let shortest = asked.iter().map(|ticket| ticket.ttl).min();
        let patience = self.patience.min(shortest.unwrap_or_default() / 8);
        let take = |(at, replies): (usize, Vec<_>)| {
            for (which, reply) in replies.into_iter().enumerate() {
                let renewed: Result<_, BackendError> = reply;
                let renewed = renewed.map(|it| it != Renewal::NotHeld);
                if matches!(renewed, Ok(false)) {
                    lacking.push((at, which));
                }
                counts[which].add(renewed);
            }
            if counts.iter().all(|count| count.decided().is_some())
                && let Some(tell) = tell.take()
            {
                let _ = tell.send(results(&counts));
            }
            false
        };
        self.gather(renewals, patience, take).await;
        if let Some(tell) = tell.take() {
            let _ = tell.send(results(&counts));
        }
        // Only beside a majority: a renewal makes no hold.
        lacking.retain(|(_, which)| counts[*which].decided() == Some(true));
        let token = self.propose();
        let repair = |(at, which): (usize, usize)| {
            let sent = Arc::clone(sent[which].as_ref()?);
            let (nodes, asked) = (Arc::clone(&self), asked[which].clone());
            Some(async move { nodes.ask(at, &asked, &sent, token, false).await })
        };
        let repairs = lacking.into_iter().filter_map(repair);
        self.gather(repairs, self.patience, |_| false).await;
    }

    /// Asks all nodes that reply in time. Returns their answers, and how many nodes have none.
    ///
    /// # Errors
    /// - Why no majority has answered.
    pub(crate) async fn survey<T: Send + 'static>(
        &self,
        operation: &'static str,
        requests: impl Iterator<Item = impl Future<Output = Result<T, BackendError>> + Send + 'static>,
    ) -> Result<(Vec<T>, usize), BackendError> {
        let (mut answers, mut errors) = (Vec::new(), Vec::new());
        let take = |reply| {
            match reply {
                Ok(answer) => answers.push(answer),
                Err(error) => errors.push(error),
            }
            false
        };
        self.gather(requests, self.patience, take).await;
        let nodes = self.all.len();
        if answers.len() >= majority(nodes) {
            let missing = nodes - answers.len();
            return Ok((answers, missing));
        }
        errors.resize_with(nodes - answers.len(), || silent(operation));
        Err(failure(operation, nodes, errors))
    }

    /// Writes requests to nodes at once, and takes their replies until there are enough or the patience ends. Requests
    /// without a reply go on by themselves.
    pub(crate) async fn gather<F>(
        &self,
        requests: impl Iterator<Item = F>,
        patience: Duration,
        mut enough: impl FnMut(F::Output) -> bool,
    ) where
        F: Future<Output: Send> + Send + 'static,
    {
        let mut open: FuturesUnordered<F> = requests.collect();
        let mut end = pin!(sleep(patience));
        loop {
            tokio::select! {
                biased;
                reply = open.next() => {
                    if reply.is_none_or(&mut enough) {
                        break;
                    }
                }
                () = &mut end => break,
            }
        }
        if !open.is_empty() {
            let rest = async move { while open.next().await.is_some() {} };
            // Detached: each ends with its connection at the latest.
            drop(self.runtime.spawn(rest));
        }
    }
}

fn refused(operation: &'static str, why: &str) -> BackendError {
    BackendError::new(BACKEND, operation, Outcome::Rejected, why)
}

fn twins(operation: &'static str) -> BackendError {
    refused(operation, TWINS)
}
