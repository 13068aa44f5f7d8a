//! Steps of the contract of which a request fails: what each finds, what it must return, and what it may leave.
//!
//! The test of a store has a table of [`Step`]s and the ways in which a request can fail. It makes each request of each
//! step fail in each way, in a [`Scene`] of its own: the outcome must be that of the whole step, and what is left of it
//! must keep no other client out.

mod scene;
mod step;

pub use scene::{Answer, Scene, Stores};
pub use step::{Call, PERMIT, Step, WRITER, step};

use crate::failure::{Failure, Outcome};

/// Makes each request of each step fail in each way. `run` is given how many requests of the step pass before, and
/// returns whether there was one more. Returns the steps that failed, each with that number.
///
/// # Errors
/// - [`Failure`] of the first that fails as it must not; it names the step.
#[expect(clippy::future_not_send, reason = "a test awaits it where it began")]
pub async fn each_request<F: Copy + std::fmt::Debug>(
    steps: &[Step],
    failures: &[F],
    run: impl AsyncFn(Step, F, usize) -> Outcome<bool>,
) -> Outcome<Vec<(&'static str, usize)>> {
    let mut failed = Vec::new();
    for &step in steps {
        for &failure in failures {
            for passed in 0.. {
                let which = |why| format!("{step:?}, {failure:?} after {passed} requests: {why}");
                let struck = run(step, failure, passed).await;
                if !struck.map_err(|why| Failure::new(which(why)))? {
                    break;
                }
                failed.push((step.name, passed));
            }
        }
    }
    Ok(failed)
}
