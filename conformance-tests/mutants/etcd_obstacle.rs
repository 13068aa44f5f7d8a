//! Requests to etcd that fail or wait on purpose.

use std::pin::Pin;
use std::sync::Arc;

/// The moment at which an obstacle meets a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The request is about to be written.
    Before,
    /// The request was executed and answered.
    After,
}

/// What happens to a request: it goes on, or the gRPC status with this code and message takes the place of
/// its answer.
pub type Obstructed = Pin<Box<dyn Future<Output = Result<(), (i32, &'static str)>> + Send>>;

type Obstruct = dyn Fn(&'static str, When) -> Obstructed + Send + Sync;

/// What tests put in the way of requests.
#[derive(Clone, Default)]
pub(crate) struct Obstacle(pub(crate) Option<Arc<Obstruct>>);

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
