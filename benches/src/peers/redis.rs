//! `rslock`, with its own pauses between two looks.

use std::time::Duration;

use async_trait::async_trait;
use lockkit::url::StoreUrl;
use rslock::LockManager;

use crate::bare::Contender;
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

/// Nothing renews it: longer than any turn.
const TTL: Duration = Duration::from_secs(30);

pub(super) struct Turn {
    manager: LockManager,
    name: String,
}

impl Turn {
    pub(super) fn new(url: &StoreUrl, name: &str) -> Outcome<Self> {
        let servers = url.hosts().iter();
        let servers: Vec<String> = servers
            .map(|host| format!("redis://{}:{}", host.name(), host.port().unwrap_or(6379)))
            .collect();
        if servers.is_empty() {
            return Err(Failure::new("no server is named"));
        }
        Ok(Self {
            manager: LockManager::new(servers),
            name: name.to_owned(),
        })
    }
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        let guard = self.manager.acquire(self.name.as_bytes(), TTL).await;
        let guard = guard.map_err(|error| Failure::new(error.to_string()))?;
        taken.now();
        guard.release().await;
        Ok(())
    }
}
