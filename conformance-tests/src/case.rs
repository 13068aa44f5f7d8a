//! One case, and what it needs of a setup.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use lockkit_core::{EndsBy, Queueing, TtlOf, Waiting};

use crate::ctx::{Ctx, Programs};
use crate::failure::Outcome;
use crate::namespace::Hook;
use crate::setup::Setup;

/// What a case needs of a setup. Decided when tests are listed, so that a skip is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Waiters are served in order.
    Fifo,
    /// Waiters are served in any order.
    Barging,
    /// The store wakes waiters.
    Push,
    /// Waiters poll.
    Poll,
    /// The store tells of losses.
    TellsLoss,
    /// A hold lasts as long as its session or its process, whatever its own lease.
    OutlivesItsLease,
    /// A hold lasts as long as its process.
    EndsWithProcess,
    /// The store itself ends a lease that is not renewed: that of the hold, or of the session.
    StoreEndsLeases,
    /// Each hold has a lease of its own.
    LeasePerHold,
    /// All holds of a client stand on its session.
    LeasePerSession,
    /// Tickets may hold together.
    Shares,
    /// A hold can have a note.
    Notes,
    /// A hold can pass from one ticket to another.
    Adopts,
    /// A hook of the setup.
    Hook(Hook),
    /// The lock-taker program, and a URL that it can open.
    Taker,
}

impl Need {
    /// Why `setup` does not have it; `None` if it has.
    #[must_use]
    pub fn lacks(self, setup: &dyn Setup, programs: &Programs) -> Option<String> {
        let can = setup.capabilities();
        let (has, reason) = match self {
            Self::Fifo => (can.queueing == Queueing::Fifo, "waiters have no order"),
            Self::Barging => (can.queueing == Queueing::Barging, "waiters have an order"),
            Self::Push => (can.waiting == Waiting::Push, "waiters poll"),
            Self::Poll => (can.waiting == Waiting::Poll, "waiters are woken"),
            Self::TellsLoss => (can.tells_loss, "the store does not tell of losses"),
            Self::OutlivesItsLease => (can.ends_by != EndsBy::Lease, "its lease ends the hold"),
            Self::EndsWithProcess => (can.ends_by == EndsBy::Process, "a lease ends the hold"),
            Self::StoreEndsLeases => (
                can.ends_by != EndsBy::Process,
                "the hold lasts as long as its process",
            ),
            Self::LeasePerHold => (can.ttl_of == TtlOf::PerHold, "leases are the session's"),
            Self::LeasePerSession => (can.ttl_of == TtlOf::PerSession, "each hold has a lease"),
            Self::Shares => (can.shares, "the store has exclusive locks only"),
            Self::Notes => (can.notes, "the store keeps no notes"),
            Self::Adopts => (can.adopts, "the store cannot hand over"),
            Self::Hook(hook) => (setup.hooks().contains(&hook), hook.what()),
            Self::Taker if programs.taker.is_none() => (false, "no lock-taker program is named"),
            Self::Taker => (setup.hooks().contains(&Hook::Url), Hook::Url.what()),
        };
        (!has).then(|| reason.to_owned())
    }
}

/// A future that a case makes. It stays on the thread that runs the case.
type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// What can be run as a case: an async function of the context.
pub trait Run<'a>: Send + Sync {
    /// Runs it.
    fn run(&self, ctx: &'a Ctx) -> Running<'a>;
}

impl<'a, F, Fut> Run<'a> for F
where
    F: Fn(&'a Ctx) -> Fut + Send + Sync,
    Fut: Future<Output = Outcome> + 'a,
{
    fn run(&self, ctx: &'a Ctx) -> Running<'a> {
        Box::pin(self(ctx))
    }
}

/// A promise and how it is put to the test.
pub struct Case {
    name: String,
    needs: Vec<Need>,
    alone: bool,
    whole_machine: bool,
    limit: Duration,
    body: Box<dyn for<'a> Run<'a>>,
}

impl Case {
    /// A case by its function; its name is the module's and the function's.
    #[must_use]
    pub fn new<F: for<'a> Run<'a> + 'static>(body: F) -> Self {
        let path: Vec<&str> = std::any::type_name::<F>().rsplit("::").take(2).collect();
        let name = path.into_iter().rev().collect::<Vec<_>>().join("::");
        Self {
            name,
            needs: Vec::new(),
            alone: false,
            whole_machine: false,
            limit: Duration::from_secs(60),
            body: Box::new(body),
        }
    }

    /// Lists the case as skipped where `need` is not met.
    #[must_use]
    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Lists the case as skipped where the setup has no `hook`.
    #[must_use]
    pub fn hook(self, hook: Hook) -> Self {
        self.needs(Need::Hook(hook))
    }

    /// Gives the case a store of its own, because others would feel what it breaks.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Runs the case beside no other, because it keeps all processors busy and counts on their time.
    #[must_use]
    pub const fn on_the_whole_machine(mut self) -> Self {
        self.whole_machine = true;
        self
    }

    /// `module::function`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first reason for which it cannot run on `setup`.
    #[must_use]
    pub fn skip(&self, setup: &dyn Setup, programs: &Programs) -> Option<String> {
        self.needs
            .iter()
            .find_map(|need| need.lacks(setup, programs))
    }

    pub(crate) const fn wants_alone(&self) -> bool {
        self.alone
    }

    pub(crate) const fn wants_whole_machine(&self) -> bool {
        self.whole_machine
    }

    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn run<'a>(&self, ctx: &'a Ctx) -> Running<'a> {
        self.body.run(ctx)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}
