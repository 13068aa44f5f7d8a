//! Promises that tests break on purpose, to test the suite.

/// Names a promise that the store breaks: a fault that a real store has had.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EtcdMutant {
    /// A waiter takes the lock when nobody is before it, whether its own key is still there or not.
    GrantToExpiredLease,
    /// A keep-alive that is answered renews every hold of the session, without a look at their keys.
    KeepAliveTakenAsProof,
    /// A key that no ticket claims stays for as long as the session lives.
    GhostKept,
    /// A ticket that was released may be attempted again.
    ReleasedTicketForgotten,
    /// A waiter decides in the middle of the events of one revision.
    GrantInMidRevision,
    /// A lease counts from the attempt, however long ago the session was confirmed.
    LeaseAgeIgnored,
    /// A release ends the hold of any holder of its name.
    ReleaseWithoutOwnerCheck,
    /// The keys of others are not watched.
    WakeUpLost,
    /// A mere try takes a place in the queue.
    TryLeavesQueueEntry,
    /// The key of a lock is its name as it is.
    NamesNotEncoded,
    /// Guarded work is done without a look at the hold.
    FenceNotCompared,
}

#[cfg(feature = "mutants")]
impl EtcdMutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::GrantToExpiredLease,
        Self::KeepAliveTakenAsProof,
        Self::GhostKept,
        Self::ReleasedTicketForgotten,
        Self::GrantInMidRevision,
        Self::LeaseAgeIgnored,
        Self::ReleaseWithoutOwnerCheck,
        Self::WakeUpLost,
        Self::TryLeavesQueueEntry,
        Self::NamesNotEncoded,
        Self::FenceNotCompared,
    ];
}

#[cfg(not(feature = "mutants"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EtcdMutant {
    GrantToExpiredLease,
    KeepAliveTakenAsProof,
    GhostKept,
    ReleasedTicketForgotten,
    GrantInMidRevision,
    LeaseAgeIgnored,
    ReleaseWithoutOwnerCheck,
    WakeUpLost,
    TryLeavesQueueEntry,
    NamesNotEncoded,
    FenceNotCompared,
}

/// What is broken; nothing, where the feature `mutants` is off.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Broken {
    #[cfg(feature = "mutants")]
    by: Option<EtcdMutant>,
}

impl Broken {
    #[cfg(feature = "mutants")]
    pub(crate) const fn by(mutant: EtcdMutant) -> Self {
        Self { by: Some(mutant) }
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn is(self, mutant: EtcdMutant) -> bool {
        self.by == Some(mutant)
    }

    #[cfg(not(feature = "mutants"))]
    #[expect(clippy::unused_self, reason = "nothing is broken without the feature")]
    pub(crate) const fn is(self, _: EtcdMutant) -> bool {
        false
    }
}

/// The moment at which an obstacle meets a request.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// It is about to be written.
    Before,
    /// It was carried out and answered.
    After,
}

/// What becomes of a request: it goes on, or the gRPC status with this code and message takes the place
/// of its answer.
#[cfg(feature = "mutants")]
pub type Obstructed =
    std::pin::Pin<Box<dyn Future<Output = Result<(), (i32, &'static str)>> + Send>>;

#[cfg(feature = "mutants")]
type Obstruct = dyn Fn(&'static str, When) -> Obstructed + Send + Sync;

/// What tests put in the way of requests.
#[cfg(feature = "mutants")]
#[derive(Clone, Default)]
pub(crate) struct Obstacle(pub(crate) Option<std::sync::Arc<Obstruct>>);

#[cfg(feature = "mutants")]
impl Obstacle {
    pub(crate) async fn meet(
        &self,
        operation: &'static str,
        when: When,
    ) -> Result<(), etcd_client::Error> {
        match &self.0 {
            Some(obstruct) => obstruct(operation, when)
                .await
                .map_err(|(code, why)| tonic::Status::new(code.into(), why).into()),
            None => Ok(()),
        }
    }
}
