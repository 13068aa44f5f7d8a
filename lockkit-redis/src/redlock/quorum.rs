//! Counts the replies of several nodes: pure functions.

#[cfg(test)]
mod tests;

use lockkit_core::{BackendError, FencingToken, Outcome};

use crate::error::{Result, text_of};

pub(crate) const BACKEND: &str = "redlock";

/// How many of these nodes decide: more than half, so that two decisions share a node.
pub(crate) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What a node has replied to an attempt.
#[derive(Clone, Debug)]
pub(crate) enum Vote {
    /// The ticket holds, with the token that the node has accepted for it.
    Own(Option<FencingToken>),
    /// Another ticket holds, or the node is in quarantine.
    Busy,
    Failed(BackendError),
}

/// What the replies to an attempt mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted(FencingToken),
    /// The ticket holds at a majority, which has not accepted one token.
    Raise,
    Held,
    Failed,
}

/// The replies to an attempt, one place for each node.
#[derive(Debug)]
pub(crate) struct Votes(Vec<Option<Vote>>);

impl Votes {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(vec![None; nodes])
    }

    pub(crate) fn set(&mut self, node: usize, vote: Vote) {
        self.0[node] = Some(vote);
    }

    pub(crate) fn of(&self, node: usize) -> Option<&Vote> {
        self.0[node].as_ref()
    }

    /// What they mean; `None` while the replies that are still out decide.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let out = self.0.iter().filter(|vote| vote.is_none()).count();
        let own = self.own().count();
        let needed = majority(self.0.len());
        let accepted = |token| self.own().filter(|own| *own == Some(token)).count();
        let mut tokens = self.own().flatten();
        if let Some(token) = tokens.find(|token| accepted(*token) >= needed) {
            return Some(Verdict::Granted(token));
        }
        match () {
            // The others may be slow or frozen.
            () if own >= needed => Some(Verdict::Raise),
            () if own + out >= needed => None,
            () if self.errors().count() > self.0.len() - needed => Some(Verdict::Failed),
            () => Some(Verdict::Held),
        }
    }

    /// Gives the nodes up that have not replied.
    pub(crate) fn end(&mut self) -> Verdict {
        for vote in self.0.iter_mut().filter(|vote| vote.is_none()) {
            *vote = Some(Vote::Failed(silent("attempt")));
        }
        self.verdict().unwrap_or(Verdict::Failed)
    }

    /// Why there is no majority. The ticket may have something at a node if it had to be withdrawn.
    pub(crate) fn error(&self, withdrawn: bool) -> BackendError {
        let failure = failure("attempt", self.0.len(), self.errors().cloned().collect());
        match (withdrawn, failure.outcome()) {
            (true, Outcome::Unavailable) => failure.with_outcome(Outcome::Indeterminate),
            _ => failure,
        }
    }

    fn own(&self) -> impl Iterator<Item = Option<FencingToken>> {
        self.0.iter().filter_map(|vote| match vote {
            Some(Vote::Own(token)) => Some(*token),
            _ => None,
        })
    }

    fn errors(&self) -> impl Iterator<Item = &BackendError> {
        self.0.iter().filter_map(|vote| match vote {
            Some(Vote::Failed(error)) => Some(error),
            _ => None,
        })
    }
}

/// The replies to a question with the answers yes and no.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    operation: &'static str,
    nodes: usize,
    yes: usize,
    no: usize,
    errors: Vec<BackendError>,
}

impl Count {
    pub(crate) const fn new(operation: &'static str, nodes: usize) -> Self {
        Self {
            operation,
            nodes,
            yes: 0,
            no: 0,
            errors: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, reply: Result<bool>) {
        match reply {
            Ok(true) => self.yes += 1,
            Ok(false) => self.no += 1,
            Err(error) => self.errors.push(error),
        }
    }

    /// Whether a majority says yes; `None` while that is open.
    pub(crate) fn decided(&self) -> Option<bool> {
        let needed = majority(self.nodes);
        match () {
            () if self.yes >= needed => Some(true),
            () if self.nodes - self.no < needed => Some(false),
            () => None,
        }
    }

    /// Gives the nodes up that have not replied.
    ///
    /// # Errors
    /// - Why no majority has decided.
    pub(crate) fn end(mut self) -> Result<bool> {
        if let Some(decided) = self.decided() {
            return Ok(decided);
        }
        let replied = self.yes + self.no + self.errors.len();
        let silent = (replied..self.nodes).map(|_| silent(self.operation));
        self.errors.extend(silent);
        let failure = failure(self.operation, self.nodes, self.errors);
        Err(match self.yes {
            0 => failure,
            _ => failure.with_outcome(Outcome::Indeterminate),
        })
    }
}

/// A node must not be asked, or refuses.
pub(crate) fn refused(operation: &'static str, why: impl Into<String>) -> BackendError {
    BackendError::new(BACKEND, operation, Outcome::Rejected, why.into())
}

pub(crate) fn silent(operation: &'static str) -> BackendError {
    let why = "no reply in time";
    BackendError::new(BACKEND, operation, Outcome::Indeterminate, why)
}

/// One error for those of several nodes.
pub(crate) fn failure(
    operation: &'static str,
    nodes: usize,
    errors: Vec<BackendError>,
) -> BackendError {
    let of = |outcome: Outcome| {
        errors
            .iter()
            .filter(move |error| error.outcome() == outcome)
    };
    let outcome = match () {
        // The others cannot make a majority.
        () if of(Outcome::Rejected).count() > nodes - majority(nodes) => Outcome::Rejected,
        () if of(Outcome::Indeterminate).count() > 0 => Outcome::Indeterminate,
        () => Outcome::Unavailable,
    };
    let first = of(outcome).next().or(errors.first());
    let cause = first.map(text_of).unwrap_or_default();
    let why = format!("{} of {nodes} nodes fail: {cause}", errors.len());
    BackendError::new(BACKEND, operation, outcome, why)
}
