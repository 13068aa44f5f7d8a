//! A map, and the mutex of the runtime: what tasks of one process would use without a lock store.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{Bare, Contender, Fact, Words};
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

#[derive(Debug, Default)]
pub(super) struct Memory {
    map: Mutex<HashMap<String, u64>>,
    mutexes: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Memory {
    fn map<T>(&self, change: impl FnOnce(&mut HashMap<String, u64>) -> T) -> T {
        change(&mut self.map.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Bare for Memory {
    fn words(&self) -> Words {
        Words {
            cycle: "insert + remove in a HashMap",
            turn: "tokio::sync::Mutex",
            recovery: "",
            hold: "insert in a HashMap",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        Ok(vec![(
            "durability".into(),
            "none: the locks end with the process".into(),
        )])
    }

    async fn cycle(&self, name: &str) -> Outcome {
        self.map(|map| map.insert(name.to_owned(), 1));
        self.map(|map| map.remove(name));
        Ok(())
    }

    async fn contender(&self, name: &str, _number: usize) -> Outcome<Box<dyn Contender>> {
        let mut mutexes = self.mutexes.lock().unwrap_or_else(PoisonError::into_inner);
        let mutex = mutexes.entry(name.to_owned()).or_default();
        Ok(Box::new(Turn(Arc::clone(mutex))))
    }

    async fn take(&self, name: &str, _ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>> {
        self.map(|map| map.insert(name.to_owned(), 1));
        Ok(Box::new(()))
    }

    async fn wait_for(&self, _name: &str) -> Outcome {
        Err(Failure::new("memory ends with its process"))
    }

    async fn keep_all(&self, _names: &[String], _ttl: Duration) -> Outcome {
        Ok(())
    }

    async fn sweep(&self, prefix: &str) -> Outcome {
        self.map(|map| map.retain(|name, _| !name.starts_with(prefix)));
        Ok(())
    }
}

struct Turn(Arc<tokio::sync::Mutex<()>>);

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        let _held = self.0.lock().await;
        taken.now();
        Ok(())
    }
}
