//! Promises broken on purpose, so that the suite can be tested.

/// Names a promise that the store breaks: a fault that a real store has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZkMutant {
    /// The number of the node is the token.
    SequenceAsToken,
    /// A waiter that is released leaves its node in the queue.
    CancelledAcquireLeavesNode,
    /// The answer of the server at hand proves that the session lives, although the leader had no part
    /// in it.
    FollowerReadAsHeartbeat,
    /// A session that lives proves every hold on it.
    KeepAliveTakenAsProof,
    /// An attempt of a released ticket makes a node.
    LateRequestMakesGhost,
    /// A lease counts from its grant, however old the last sign of life is.
    LeaseAgeIgnored,
    /// A release ends the hold of any holder of its name.
    ReleaseWithoutOwnerCheck,
}

impl ZkMutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::SequenceAsToken,
        Self::CancelledAcquireLeavesNode,
        Self::FollowerReadAsHeartbeat,
        Self::KeepAliveTakenAsProof,
        Self::LateRequestMakesGhost,
        Self::LeaseAgeIgnored,
        Self::ReleaseWithoutOwnerCheck,
    ];
}
