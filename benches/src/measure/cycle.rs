//! One cycle without contention, on either side.

use std::sync::Arc;

use lockkit::{Lock, LockClient, MultiLock};
use tokio::try_join;

use crate::bare::Bare;
use crate::failure::Outcome;
use crate::side::Side;
use crate::target::Target;

/// A program's way to a store.
#[derive(Clone)]
pub(super) enum Way {
    Lock(LockClient),
    Bare(Arc<dyn Bare>),
}

impl Way {
    pub(super) fn to(target: &Target, side: Side) -> Self {
        match side {
            Side::Lock => Self::Lock(target.client.clone()),
            Side::Bare => Self::Bare(Arc::clone(&target.bare)),
        }
    }

    pub(super) fn named(&self, name: String) -> Outcome<Cycle> {
        Ok(match self {
            Self::Lock(client) => Cycle::Lock(client.lock(name)?),
            Self::Bare(bare) => Cycle::Bare(Arc::clone(bare), name),
        })
    }

    /// Four names, taken together.
    pub(super) fn with_four_names(&self, name: &str) -> Outcome<Cycle> {
        let names = [0, 1, 2, 3].map(|number| format!("{name}-{number}"));
        Ok(match self {
            Self::Lock(client) => {
                let locks = names.iter().map(|name| client.lock(name));
                let locks = locks.collect::<lockkit::Result<Vec<_>>>()?;
                Cycle::Locks(MultiLock::new(locks)?)
            }
            Self::Bare(bare) => Cycle::Bares(Arc::clone(bare), names),
        })
    }
}

/// One name or four, taken and given back again and again.
#[derive(Clone)]
pub(super) enum Cycle {
    Lock(Lock),
    Bare(Arc<dyn Bare>, String),
    Locks(MultiLock),
    Bares(Arc<dyn Bare>, [String; 4]),
}

impl Cycle {
    pub(super) async fn run(&self) -> Outcome {
        match self {
            Self::Lock(lock) => Ok(lock.acquire().await?.release().await?),
            Self::Bare(bare, name) => bare.cycle(name).await,
            Self::Locks(lock) => Ok(lock.acquire().await?.release().await?),
            Self::Bares(bare, [a, b, c, d]) => {
                try_join!(bare.cycle(a), bare.cycle(b), bare.cycle(c), bare.cycle(d))?;
                Ok(())
            }
        }
    }
}

/// The name that a side uses: the two must never meet.
pub(super) fn name(target: &Target, side: Side, rest: impl std::fmt::Display) -> String {
    match side {
        Side::Lock => target.name(format_args!("lock-{rest}")),
        Side::Bare => target.name(format_args!("bare-{rest}")),
    }
}
