//! What all parts of a store share, and the grant of a hold.

use std::sync::Arc;

use lockkit_core::contract::Grant;
use lockkit_core::store::waiters::Entry;
use lockkit_core::{Capabilities, FencingToken, HolderId};

use crate::config::{Access, ZkStoreBuilder};
use crate::error::Result;
use crate::keys::Keys;
use crate::session::{Session, Sessions};
use crate::waiters::{Contender, Node, TicketState, Waiters};

pub(crate) struct Shared {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) keys: Keys,
    pub(crate) access: Access,
    pub(crate) capabilities: Capabilities,
    token_base: u64,
}

impl Shared {
    /// Begins the first session.
    pub(crate) async fn connect(config: ZkStoreBuilder) -> Result<Self> {
        let sessions = Sessions::begin(config.clone()).await?;
        let granted = sessions.present().client.session_timeout();
        Ok(Self {
            sessions,
            waiters: Arc::default(),
            keys: Keys::new(&config.root, config.names, config.dialect),
            access: config.who_may(),
            token_base: config.token_base,
            capabilities: config.session(granted).capabilities(),
        })
    }

    /// The token of a hold by a node: the transaction that created it. INV-4.
    pub(crate) fn token(&self, czxid: i64) -> FencingToken {
        FencingToken::of_revision(czxid, self.token_base)
    }

    /// The grant of a hold by a node, on a session whose age counts. INV-2.
    pub(crate) fn grant(&self, session: &Session, node: &Node) -> Grant {
        let token = self.token(node.czxid);
        Grant::new(token, session.lease).with_since(session.since())
    }

    pub(crate) fn contender(&self, holder: HolderId) -> Option<Contender> {
        let contender = |entry: &mut Entry<TicketState>| entry.data.contender.clone();
        self.waiters.with(holder, contender)?
    }

    /// Keeps the place of a known ticket.
    pub(crate) fn set(&self, holder: HolderId, contender: Option<Contender>) {
        self.waiters
            .with(holder, |entry| entry.data.contender = contender);
    }
}
