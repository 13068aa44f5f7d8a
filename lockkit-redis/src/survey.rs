//! Asks several servers the same at once.

use std::time::Duration;

use lockkit_core::Outcome;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::handshake::Failure;

/// How long the first answer waits for others: one that is cut off knows only what was.
const FIRST_WAITS: Duration = Duration::from_millis(200);

/// Returns the answers, and why others have none. It waits until `enough` of them count, or for `limit`; for
/// [`FIRST_WAITS`] after the first that counts.
pub(crate) async fn survey<A: Send + 'static>(
    mut asked: JoinSet<Result<A, Failure>>,
    enough: usize,
    counts: impl Fn(&A) -> bool,
    limit: Duration,
) -> (Vec<A>, Vec<Failure>) {
    let mut end = Instant::now() + limit;
    let (mut answers, mut failures) = (Vec::new(), Vec::new());
    while answers.iter().filter(|answer| counts(answer)).count() < enough
        && let Ok(Some(answer)) = timeout_at(end, asked.join_next()).await
    {
        match answer {
            Ok(Ok(answer)) => {
                if counts(&answer) {
                    end = end.min(Instant::now() + FIRST_WAITS);
                }
                answers.push(answer);
            }
            Ok(Err(failure)) => failures.push(failure),
            Err(panicked) => failures.push((Outcome::Unavailable, panicked.to_string())),
        }
    }
    if !asked.is_empty() {
        let why = format!("no answer from {} within {limit:?}", asked.len());
        failures.push((Outcome::Unavailable, why));
    }
    (answers, failures)
}

/// Why nobody has answered. It is no use to ask again if all have refused.
pub(crate) fn no_answer(what: &str, failures: Vec<Failure>) -> Failure {
    let outcome = match failures.iter().all(|(it, _)| *it == Outcome::Rejected) {
        true => Outcome::Rejected,
        false => Outcome::Unavailable,
    };
    let whys: Vec<String> = failures.into_iter().map(|(_, why)| why).collect();
    (outcome, format!("{what}: {}", whys.join("; ")))
}
