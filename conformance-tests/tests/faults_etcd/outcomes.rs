//! Failed requests: what the store says of their effect.

use std::error::Error as _;
use std::time::Duration;

use conformance_tests::proxy::{Direction, Flow};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::within;
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use etcd_client::{GetOptions, PutOptions, Txn, TxnOp};
use lockkit_core::contract::{DistributedLock as _, Ticket};
use lockkit_core::{
    BackendError, Error, FencingToken, Guard, Lease, LockClient, Outcome as Effect,
};
use lockkit_etcd::{Fenced, FencedError};

use crate::access::{PASSWORD, guarded};
use crate::sessions::ticket;
use crate::world::{LONG, SOON, behind, builder, client, client_of, proxy};

/// More than servers take in one request.
const LARGE: usize = 3 << 20;
/// More than servers keep a lease for.
const AGES: Duration = Duration::from_secs(300 * 365 * 86_400);

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(request_that_no_server_takes_is_rejected)
        .test(guarded_work_with_an_ended_lease_is_rejected)
        .test(request_without_a_connection_was_not_sent)
        .test(lost_grant_of_a_lease_makes_no_key)
        .test(token_base_has_a_limit)
}

fn fenced<'a>(client: &'a LockClient, guard: &Guard) -> Outcome<Fenced<'a>> {
    Fenced::by(client, guard).ok_or_else(|| Failure::new("the store is etcd"))
}

/// The error of a commit that fails.
async fn failed(fenced: &Fenced<'_>, work: TxnOp) -> Outcome<BackendError> {
    match fenced.commit(Txn::new().and_then([work])).await {
        Err(FencedError::Backend(error)) => Ok(error),
        other => Err(Failure::new(format!("{other:?}"))),
    }
}

fn has_outcome(error: &BackendError, outcome: Effect) -> Outcome {
    ensure(error.outcome() == outcome, format!("{error:?}"))
}

async fn request_that_no_server_takes_is_rejected() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let proxy = proxy(&cluster).await?;
    let client = behind(&proxy, LONG).await?;
    let lock = client.lock("jobs")?;
    let guard = lock.acquire().await?;
    let fenced = fenced(&client, &guard)?;
    let old = asker.put("stock", "1", None).await?;
    let old = old.header().map_or(1, |header| header.revision());
    let now = asker.put("stock", "2", None).await?;
    let now = now.header().map_or(1, |header| header.revision());
    asker.compact(now, None).await?;
    let at = |revision| GetOptions::new().with_revision(revision);
    for work in [
        TxnOp::get("stock", Some(at(old))),
        TxnOp::get("stock", Some(at(now + 1_000))),
        TxnOp::put("stock", vec![0; LARGE], None),
    ] {
        has_outcome(&failed(&fenced, work).await?, Effect::Rejected)?;
    }
    let ages = client.lock("ages")?.with_lease(Lease::fixed(AGES))?;
    match within(SOON, ages.acquire()).await? {
        Err(Error::Backend(error)) => has_outcome(&error, Effect::Rejected)?,
        other => return Err(Failure::new(format!("{other:?}"))),
    }
    guard.release().await?;
    // It was no reason to give up a connection that is well.
    let made = proxy.counts().connections;
    ensure(made == 1, format!("{made} connections"))
}

async fn guarded_work_with_an_ended_lease_is_rejected() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let client = client(&cluster, LONG).await?;
    let guard = client.lock("jobs")?.acquire().await?;
    let ended = PutOptions::new().with_lease(17);
    let work = TxnOp::put("stock", "7", Some(ended));
    let error = failed(&fenced(&client, &guard)?, work).await?;
    has_outcome(&error, Effect::Rejected)?;
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    ensure(why.contains("a lease of the transaction"), why)?;
    guard.release().await?;
    Ok(())
}

/// The user must be authenticated first, and the answer to that does not come.
async fn request_without_a_connection_was_not_sent() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    guarded(&cluster).await?;
    let proxy = proxy(&cluster).await?;
    let store = builder(&[proxy.addr().port()]).user("app", PASSWORD);
    let client = client_of(&store.connect().await?, LONG)?;
    let guard = client.lock("jobs")?.acquire().await?;
    let fenced = fenced(&client, &guard)?;
    proxy.flow(Direction::Reply, Flow::Hold);
    let put = || TxnOp::put("lockkit/stock", "7", None);
    has_outcome(&failed(&fenced, put()).await?, Effect::Indeterminate)?;
    for _ in 0..2 {
        has_outcome(&failed(&fenced, put()).await?, Effect::Unavailable)?;
    }
    proxy.heal();
    within(SOON, guard.release()).await??;
    Ok(())
}

/// An attempt puts no key before the server has granted the lease.
async fn lost_grant_of_a_lease_makes_no_key() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let proxy = proxy(&cluster).await?;
    let store = builder(&[proxy.addr().port()]).connect().await?;
    let ticket: Ticket = ticket("jobs", LONG)?;
    proxy.flow(Direction::Reply, Flow::Hold);
    match store.attempt(&ticket.with_enqueue(false)).await {
        Err(error) => has_outcome(&error, Effect::Unavailable)?,
        other => return Err(Failure::new(format!("{other:?}"))),
    }
    ensure(store.counts().tickets == 0, format!("{:?}", store.counts()))
}

async fn token_base_has_a_limit() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let largest = FencingToken::LARGEST_BASE;
    let of = |base| builder(&cluster.ports()).token_base(base).connect();
    let lock = client_of(&of(largest).await?, LONG)?.lock("jobs")?;
    let first = lock.acquire().await?;
    ensure(first.token().get() > largest, first.token().to_string())?;
    let token = first.token();
    first.release().await?;
    let second = lock.acquire().await?;
    ensure(second.token() > token, "the token did not grow")?;
    second.release().await?;
    let error = of(largest + 1).await.err();
    let error = error.ok_or_else(|| Failure::new("it was opened"))?;
    has_outcome(&error, Effect::Rejected)?;
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    ensure(why.contains("2^62"), why)
}
