//! The tests are tested: each promise that can be broken on purpose is caught by a named case, and
//! the same case passes when the promise is kept.
//!
//! One line of [`TABLE`] is one mutant: what is broken, where, and the case that must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::setups::{
    EtcdSetup, FileSetup, MemorySetup, MysqlSetup, PostgresSetup, RedisSetup, SqliteSetup, ZkSetup,
};
use conformance_tests::{Case, CaseRun, Failure, Outcome, Programs, Setup, cases};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_core::DistributedLock;
use lockkit_core::file::FileMutant;
use lockkit_core::memory::StoreMutant;
use lockkit_core::mutants::Mutant;
use lockkit_etcd::EtcdMutant;
use lockkit_redis::RedisMutant;
use lockkit_sql::SqlMutant;
use lockkit_zk::ZkMutant;

/// What is broken.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Client(Mutant),
    Memory(StoreMutant),
    File(FileMutant),
    Redis(RedisMutant),
    Etcd(EtcdMutant),
    Sql(SqlMutant),
    Zk(ZkMutant),
}

/// What it is broken in.
#[derive(Clone, Copy, Debug)]
enum In {
    Memory,
    Sessions,
    Barging,
    Poll,
    File,
    Redis,
    RedisBarging,
    Etcd,
    Sqlite,
    Postgres,
    MariaDb,
    Zk,
}

use Broken::{Client, Etcd, File, Memory, Redis, Sql, Zk};

#[rustfmt::skip]
const TABLE: &[(Broken, In, &str)] = &[
    (Client(Mutant::WindowFromReply), In::Memory, "lease::window_counts_from_the_request"),
    (Client(Mutant::WindowFromReply), In::Poll, "lease::renewed_window_counts_from_the_request"),
    (Client(Mutant::LeaseAgeIgnored), In::Sessions, "lease::window_counts_from_the_last_heartbeat"),
    (Client(Mutant::LossNotSticky), In::Memory, "loss::loss_is_sticky"),
    (Client(Mutant::CheckByFlag), In::Memory, "loss::check_reads_the_clock"),
    (Client(Mutant::RenewalNotRetried), In::Memory, "lease::transient_errors_are_retried"),
    (Client(Mutant::OneBadRenewalStopsAll), In::Memory, "lease::one_bad_lock_does_not_stop_others"),
    (Client(Mutant::NoRecheck), In::Memory, "waiting::served_when_wake_ups_are_lost_on_the_way"),
    (Client(Mutant::CancelLeavesTicket), In::Memory, "cancel::dropped_during_the_attempt"),
    (Client(Mutant::LostHoldKeptUntilDrop), In::File, "lease::fixed_lease_frees_the_lock_while_its_guard_is_kept"),
    (Client(Mutant::DropSpawns), In::Memory, "cancel::guard_dropped_outside_a_runtime"),
    (Client(Mutant::ReentryRaisesToken), In::Memory, "reentry::owner_reenters_with_the_same_token"),
    (Client(Mutant::AnyOwnerReenters), In::Memory, "reentry::another_owner_waits"),
    (Client(Mutant::CancelledWaiterKeepsTurn), In::Memory, "cancel::cancelled_task_passes_its_turn_on"),
    (Client(Mutant::AmbiguousReleaseForgotten), In::Memory, "ambiguity::release_without_reply_is_a_release"),
    (Client(Mutant::HolderReused), In::Memory, "fencing::holders_are_never_used_again"),
    (Client(Mutant::LossNotWatched), In::Sessions, "loss::ended_session_is_reported"),
    (Memory(StoreMutant::ReleaseWithoutOwnerCheck), In::Memory, "exclusion::release_by_another_client_changes_nothing"),
    (Memory(StoreMutant::RenewalRecreates), In::Memory, "loss::renewal_never_creates_a_hold"),
    (Memory(StoreMutant::WakeUpLost), In::Memory, "waiting::release_wakes_the_waiter_at_once"),
    (Memory(StoreMutant::RecheckFindsNothing), In::Memory, "waiting::served_when_the_store_loses_wake_ups"),
    (Memory(StoreMutant::EarlyPushDropped), In::Memory, "waiting::early_wake_up_is_kept"),
    (Memory(StoreMutant::CounterRestartsAfterWipe), In::Memory, "fencing::token_grows_over_wipe"),
    (Memory(StoreMutant::TokenRaisedOnRepeat), In::Memory, "fencing::repeated_attempt_keeps_the_token"),
    (Memory(StoreMutant::PushedGrantKeepsFullTtl), In::Memory, "queue::dead_waiter_keeps_a_grant_briefly"),
    (Memory(StoreMutant::QueueEntryWithoutHeartbeat), In::Memory, "queue::dead_waiter_leaves_the_queue"),
    (Memory(StoreMutant::WithdrawalWakesNobody), In::Memory, "queue::withdrawn_waiter_passes_the_lock_on"),
    (Memory(StoreMutant::GhostAfterRelease), In::Sessions, "ambiguity::late_attempt_of_a_released_ticket_leaves_no_hold"),
    (Memory(StoreMutant::TokenOfLastHolderRepeated), In::Barging, "fencing::token_grows_over_release"),
    (Memory(StoreMutant::TryLeavesQueueEntry), In::Memory, "exclusion::try_leaves_nothing_behind"),
    (Memory(StoreMutant::GrantToExpiredSession), In::Sessions, "queue::waiter_of_an_ended_session_is_passed_over"),
    (Memory(StoreMutant::LeaseShortened), In::Memory, "lease::no_request_shortens_a_lease"),
    (File(FileMutant::NoInodeCompare), In::File, "admin::broken_holder_learns_of_it"),
    (File(FileMutant::BareCounter), In::File, "fencing::token_grows_over_wipe"),
    (File(FileMutant::ReleaseOfAnybody), In::File, "exclusion::release_by_another_client_changes_nothing"),
    (File(FileMutant::GhostAfterRelease), In::File, "ambiguity::late_attempt_of_a_released_ticket_leaves_no_hold"),
    (File(FileMutant::UnlinkOnRelease), In::File, "file::waiting_program_gets_the_lock_that_others_ask_for"),
    (Redis(RedisMutant::ReleaseWithoutOwnerCheck), In::Redis, "exclusion::release_by_another_client_changes_nothing"),
    (Redis(RedisMutant::RenewalRecreates), In::Redis, "loss::renewal_never_creates_a_hold"),
    (Redis(RedisMutant::RenewalShortens), In::Redis, "redis::late_renewal_shortens_no_lease"),
    (Redis(RedisMutant::WakeUpLost), In::Redis, "waiting::release_wakes_the_waiter_at_once"),
    (Redis(RedisMutant::RecheckFindsNothing), In::Redis, "waiting::served_when_the_store_loses_wake_ups"),
    (Redis(RedisMutant::BareCounter), In::Redis, "fencing::token_grows_over_wipe"),
    (Redis(RedisMutant::TokenRaisedOnRepeat), In::Redis, "fencing::repeated_attempt_keeps_the_token"),
    (Redis(RedisMutant::TokenOfLastHolderRepeated), In::RedisBarging, "fencing::token_grows_over_release"),
    (Redis(RedisMutant::PushedGrantKeepsFullTtl), In::Redis, "queue::dead_waiter_keeps_a_grant_briefly"),
    (Redis(RedisMutant::QueueEntryWithoutHeartbeat), In::Redis, "queue::dead_waiter_leaves_the_queue"),
    (Redis(RedisMutant::TryLeavesQueueEntry), In::Redis, "exclusion::try_leaves_nothing_behind"),
    (Redis(RedisMutant::EarlyPushDropped), In::Redis, "waiting::early_wake_up_is_kept"),
    (Redis(RedisMutant::GhostOfLateRequest), In::Redis, "queue::late_attempt_of_a_withdrawn_waiter_delays_no_other"),
    (Redis(RedisMutant::NoAttemptAfterSubscribing), In::RedisBarging, "waiting::early_wake_up_is_kept"),
    (Redis(RedisMutant::NoAttemptAfterReconnecting), In::Redis, "outage::waiter_tries_again_when_its_wake_ups_come_back"),
    (Etcd(EtcdMutant::GrantToExpiredLease), In::Etcd, "queue::waiter_whose_session_ended_holds_with_a_new_one"),
    (Etcd(EtcdMutant::KeepAliveTakenAsProof), In::Etcd, "loss::renewal_never_creates_a_hold"),
    (Etcd(EtcdMutant::GhostKept), In::Etcd, "etcd::key_of_a_late_request_is_deleted"),
    (Etcd(EtcdMutant::ReleasedTicketForgotten), In::Etcd, "ambiguity::late_attempt_of_a_released_ticket_leaves_no_hold"),
    (Etcd(EtcdMutant::GrantInMidRevision), In::Etcd, "queue::session_takes_a_hold_and_a_waiter_at_once"),
    (Etcd(EtcdMutant::LeaseAgeIgnored), In::Etcd, "etcd::old_session_counts_from_its_last_beat"),
    (Etcd(EtcdMutant::ReleaseWithoutOwnerCheck), In::Etcd, "exclusion::release_by_another_client_changes_nothing"),
    (Etcd(EtcdMutant::WakeUpLost), In::Etcd, "etcd::release_wakes_the_waiter"),
    (Etcd(EtcdMutant::TryLeavesQueueEntry), In::Etcd, "exclusion::try_leaves_nothing_behind"),
    (Etcd(EtcdMutant::NamesNotEncoded), In::Etcd, "names::names_within_names_stay_apart"),
    (Etcd(EtcdMutant::FenceNotCompared), In::Etcd, "etcd::work_of_a_broken_hold_is_refused"),
    (Sql(SqlMutant::ReleaseWithoutOwnerCheck), In::Sqlite, "exclusion::release_by_another_client_changes_nothing"),
    (Sql(SqlMutant::ReleaseWithoutOwnerCheck), In::Postgres, "exclusion::release_by_another_client_changes_nothing"),
    (Sql(SqlMutant::RenewalRecreates), In::Sqlite, "loss::renewal_never_creates_a_hold"),
    (Sql(SqlMutant::RenewalRecreates), In::Postgres, "loss::renewal_never_creates_a_hold"),
    (Sql(SqlMutant::BareCounter), In::Sqlite, "fencing::token_grows_over_wipe"),
    (Sql(SqlMutant::BareCounter), In::Postgres, "fencing::token_grows_over_wipe"),
    (Sql(SqlMutant::TokenOfLastHolderRepeated), In::Sqlite, "fencing::token_grows_over_release"),
    (Sql(SqlMutant::TokenOfLastHolderRepeated), In::Postgres, "fencing::token_grows_over_release"),
    (Sql(SqlMutant::TokenRaisedOnRepeat), In::Sqlite, "fencing::repeated_attempt_keeps_the_token"),
    (Sql(SqlMutant::TokenRaisedOnRepeat), In::Postgres, "fencing::repeated_attempt_keeps_the_token"),
    (Sql(SqlMutant::LeaseNeverEnds), In::Sqlite, "lease::store_ends_a_lease_that_is_not_renewed"),
    (Sql(SqlMutant::LeaseNeverEnds), In::Postgres, "lease::store_ends_a_lease_that_is_not_renewed"),
    (Sql(SqlMutant::WakeUpLost), In::Postgres, "capabilities::push_wakes_a_waiter"),
    (Sql(SqlMutant::ReleaseWithoutOwnerCheck), In::MariaDb, "exclusion::release_by_another_client_changes_nothing"),
    (Sql(SqlMutant::RenewalRecreates), In::MariaDb, "loss::renewal_never_creates_a_hold"),
    (Sql(SqlMutant::RenewalWaits), In::Postgres, "sql::locked_row_stops_no_other_renewal"),
    (Sql(SqlMutant::RenewalWaits), In::MariaDb, "sql::locked_row_stops_no_other_renewal"),
    (Sql(SqlMutant::BareCounter), In::MariaDb, "fencing::token_grows_over_wipe"),
    (Sql(SqlMutant::TokenOfLastHolderRepeated), In::MariaDb, "fencing::token_grows_over_release"),
    (Sql(SqlMutant::TokenRaisedOnRepeat), In::MariaDb, "fencing::repeated_attempt_keeps_the_token"),
    (Sql(SqlMutant::LeaseNeverEnds), In::MariaDb, "lease::store_ends_a_lease_that_is_not_renewed"),
    (Sql(SqlMutant::RenewalShortens), In::Sqlite, "sql::no_renewal_shortens_a_lease"),
    (Sql(SqlMutant::RenewalShortens), In::Postgres, "sql::no_renewal_shortens_a_lease"),
    (Sql(SqlMutant::RenewalShortens), In::MariaDb, "sql::no_renewal_shortens_a_lease"),
    (Sql(SqlMutant::PrefixIsPattern), In::Sqlite, "admin::list_keeps_to_its_prefix"),
    (Zk(ZkMutant::SequenceAsToken), In::Zk, "fencing::token_grows_over_wipe"),
    (Zk(ZkMutant::CancelledAcquireLeavesNode), In::Zk, "residue::nothing_left_after_giving_up"),
    (Zk(ZkMutant::KeepAliveTakenAsProof), In::Zk, "loss::renewal_never_creates_a_hold"),
    (Zk(ZkMutant::LateRequestMakesGhost), In::Zk, "ambiguity::late_attempt_of_a_released_ticket_leaves_no_hold"),
    (Zk(ZkMutant::ReleaseWithoutOwnerCheck), In::Zk, "exclusion::release_by_another_client_changes_nothing"),
];

/// Those that no case can catch, because every store would have to be an ensemble for it, or on a slow
/// line: `faults_zk` catches them.
const ELSEWHERE: &[Broken] = &[
    Zk(ZkMutant::FollowerReadAsHeartbeat),
    Zk(ZkMutant::LeaseAgeIgnored),
];

/// A mutant must be caught within this time.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let Some(code) = conformance_tests::servers::guardian::serve() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(8);
    let mut trials: Vec<Trial> = TABLE.iter().map(|line| trial(*line)).collect();
    trials.push(Trial::test("every_mutant_is_in_the_table", every_mutant));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial((broken, place, case): (Broken, In, &'static str)) -> Trial {
    let name = format!("{broken:?} is caught by {case}");
    Trial::test(name, move || {
        let found = find(case).ok_or(format!("no case is called {case}"))?;
        sound(place, &found)?;
        let start = tokio::time::Instant::now();
        let caught = outcome(broken, place, &found).err();
        let took = start.elapsed();
        match caught {
            None => Err(Failed::from("the case passes all the same")),
            Some(_) if took >= LIMIT => Err(format!("caught only after {took:?}").into()),
            Some(_) => Ok(()),
        }
    })
}

/// A case of the suite, or one that only one store can be asked.
fn find(name: &str) -> Option<Case> {
    let special = [file::cases(), redis::cases(), etcd::cases(), sql::cases()];
    let mut all = cases::all()
        .into_iter()
        .chain(special.into_iter().flatten());
    all.find(|case| case.name() == name)
}

/// The case passes where no promise is broken; it may be unlucky once on a busy machine.
fn sound(place: In, case: &Case) -> Result<(), Failed> {
    let setup = setup(place, None);
    if let Some(reason) = case.skip(&*setup, &Programs::default()) {
        return Err(format!("it cannot run there: {reason}").into());
    }
    run(CaseRun::new(&*setup, case, Programs::default()))
        .map_err(|why| format!("it fails although nothing is broken: {why}").into())
}

fn outcome(broken: Broken, place: In, case: &Case) -> Result<(), String> {
    let setup = setup(place, Some(broken));
    let run_of_case = CaseRun::new(&*setup, case, Programs::default());
    match broken {
        Client(mutant) => run(run_of_case.mutant(mutant)),
        Memory(_) | File(_) | Redis(_) | Etcd(_) | Sql(_) | Zk(_) => run(run_of_case),
    }
}

/// A case may fail by a panic, also of a task that the client made.
fn run(case: CaseRun<'_>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| case.run())) {
        Ok(result) => result.map_err(|failure| failure.to_string()),
        Err(_) => Err("it panicked".to_owned()),
    }
}

/// A setup, with the broken promise in its store if that is where it belongs.
macro_rules! setup_with {
    ($setup:expr, $kind:ident, $broken:expr) => {
        Box::new(match $broken {
            Some($kind(mutant)) => $setup.mutant(mutant),
            _ => $setup,
        })
    };
}

fn setup(place: In, broken: Option<Broken>) -> Box<dyn Setup> {
    match place {
        In::Memory => setup_with!(MemorySetup::leases(), Memory, broken),
        In::Sessions => setup_with!(MemorySetup::sessions(), Memory, broken),
        In::Barging => setup_with!(MemorySetup::barging(), Memory, broken),
        In::Poll => setup_with!(MemorySetup::poll(), Memory, broken),
        In::File => setup_with!(FileSetup::new(), File, broken),
        In::Redis => setup_with!(RedisSetup::fair(), Redis, broken),
        In::RedisBarging => setup_with!(RedisSetup::barging(), Redis, broken),
        In::Etcd => setup_with!(EtcdSetup::single(), Etcd, broken),
        In::Zk => setup_with!(ZkSetup::one(), Zk, broken),
        In::Sqlite => setup_with!(SqliteSetup::new(), Sql, broken),
        In::Postgres => setup_with!(PostgresSetup::leases(), Sql, broken),
        In::MariaDb => setup_with!(MysqlSetup::mariadb(), Sql, broken),
    }
}

/// A mutant that no case catches would look like a tested promise.
fn every_mutant() -> Result<(), Failed> {
    let listed = TABLE
        .iter()
        .map(|line| line.0)
        .chain(ELSEWHERE.iter().copied());
    let listed: Vec<String> = listed.map(|broken| format!("{broken:?}")).collect();
    let all = Mutant::ALL.iter().map(|mutant| Client(*mutant));
    let all = all.chain(StoreMutant::ALL.iter().map(|mutant| Memory(*mutant)));
    let all = all.chain(FileMutant::ALL.iter().map(|mutant| File(*mutant)));
    let all = all.chain(RedisMutant::ALL.iter().map(|mutant| Redis(*mutant)));
    let all = all.chain(EtcdMutant::ALL.iter().map(|mutant| Etcd(*mutant)));
    let all = all.chain(ZkMutant::ALL.iter().map(|mutant| Zk(*mutant)));
    let all = all.chain(SqlMutant::ALL.iter().map(|mutant| Sql(*mutant)));
    let missing: Vec<String> = all
        .map(|broken| format!("{broken:?}"))
        .filter(|name| !listed.contains(name))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("not in the table: {}", missing.join(", ")).into())
    }
}

/// The store itself, where a case is for no other.
fn inner<S: 'static>(store: &Arc<dyn DistributedLock>) -> Outcome<&S> {
    let inner = store.as_any().downcast_ref();
    inner.ok_or_else(|| Failure::new("it is another store"))
}

/// What only a store in files can be asked.
mod file {
    use std::fs::File;

    use conformance_tests::{Case, Ctx, Outcome, ensure};
    use lockkit_core::file::FileStore;

    use super::inner;

    pub(super) fn cases() -> Vec<Case> {
        vec![Case::new(waiting_program_gets_the_lock_that_others_ask_for)]
    }

    /// `flock(1)` opens the file first and locks it when it can: what it opened must stay the lock.
    async fn waiting_program_gets_the_lock_that_others_ask_for(ctx: &Ctx) -> Outcome {
        let (store, lock) = (ctx.store().await?, ctx.client().await?.lock(ctx.name())?);
        let path = inner::<FileStore>(&store)?.path(lock.name());
        let guard = lock.acquire().await?;
        let waiting = File::open(path)?;
        ensure(waiting.try_lock().is_err(), "the program is let in at once")?;
        guard.release().await?;
        ensure(waiting.try_lock().is_ok(), "the program is not let in")?;
        let taken = lock.try_acquire().await?;
        ensure(taken.is_none(), "both have the lock")
    }
}

/// What only a store can be asked whose leases each have a length of their own.
mod redis {
    use conformance_tests::{Case, Ctx, Outcome, ensure};

    pub(super) fn cases() -> Vec<Case> {
        vec![Case::new(late_renewal_shortens_no_lease)]
    }

    async fn late_renewal_shortens_no_lease(ctx: &Ctx) -> Outcome {
        let (name, store) = (ctx.name(), ctx.store().await?);
        let ticket = ctx.ticket(&name)?;
        store.attempt(&ticket).await?;
        let longer = ticket.clone().with_ttl(ctx.ttl() * 10);
        for ticket in [longer, ticket.clone()] {
            for answer in store.renew(&[ticket]).await {
                answer?;
            }
        }
        let left = store.inspect(&ticket.name).await?;
        let left = left.and_then(|state| state.remaining).unwrap_or_default();
        ensure(left > ctx.ttl() * 2, format!("{left:?} are left"))
    }
}

/// What only a store in etcd can be asked.
mod etcd {
    use std::sync::Arc;
    use std::time::Duration;

    use conformance_tests::proxy::Direction;
    use conformance_tests::task::{acquire, within};
    use conformance_tests::{Case, Ctx, Failure, Outcome, ensure};
    use etcd_client::{Client, PutOptions, Txn, TxnOp};
    use lockkit_core::contract::Attempt;
    use lockkit_core::{Lease, Lock};
    use lockkit_etcd::{EtcdStore, Fenced, FencedError};

    use super::inner;

    pub(super) fn cases() -> Vec<Case> {
        vec![
            Case::new(key_of_a_late_request_is_deleted),
            Case::new(old_session_counts_from_its_last_beat),
            Case::new(work_of_a_broken_hold_is_refused),
            Case::new(release_wakes_the_waiter),
        ]
    }

    async fn key_of_a_late_request_is_deleted(ctx: &Ctx) -> Outcome {
        let url = ctx.namespace().url().unwrap_or_default();
        let place = url.trim_start_matches("etcd://");
        let (host, root) = place.split_once('/').unwrap_or((place, ""));
        let mut asker = Client::connect([host], None).await?;
        let store = ctx.store().await?;
        let client = ctx.builder(Arc::clone(&store)).build()?;
        let other = client.lock(ctx.name())?.acquire().await?;
        let lease = inner::<EtcdStore>(&store)?
            .leases()
            .first()
            .copied()
            .unwrap_or(0);
        let late = format!("{root}/late/{lease:x}-999999");
        let options = PutOptions::new().with_lease(lease);
        asker.put(late, "late", Some(options)).await?;
        let lock = ctx.client().await?.lock("late")?;
        within(ctx.ttl() * 2, lock.acquire())
            .await??
            .release()
            .await?;
        other.check()?;
        Ok(())
    }

    /// Long before it would look again.
    async fn release_wakes_the_waiter(ctx: &Ctx) -> Outcome {
        let name = ctx.name();
        let lease = Lease::renewed(Duration::from_secs(30));
        let long = async || -> Outcome<Lock> {
            let lock = ctx.client().await?.lock(name.as_str())?;
            Ok(lock.with_lease(lease)?)
        };
        let (one, other) = (long().await?, long().await?);
        let guard = one.acquire().await?;
        let waiter = acquire(&other);
        ctx.queued(&one, 1).await?;
        guard.release().await?;
        let woken = within(Duration::from_secs(2), waiter.soon()).await???;
        Ok(woken.release().await?)
    }

    async fn old_session_counts_from_its_last_beat(ctx: &Ctx) -> Outcome {
        const SLOW: Duration = Duration::from_millis(300);
        let (store, proxy) = ctx.store_through_proxy().await?;
        let lock = ctx.builder(store).build()?.lock(ctx.name())?;
        lock.acquire().await?.release().await?;
        // Whatever confirmed the session was written so long ago at least.
        proxy.delay(Direction::Reply, SLOW);
        let left = lock.acquire().await?.remaining();
        ensure(left < ctx.ttl() - SLOW, format!("believes in {left:?}"))
    }

    async fn work_of_a_broken_hold_is_refused(ctx: &Ctx) -> Outcome {
        let (name, store) = (ctx.name(), ctx.store().await?);
        let ticket = ctx.ticket(&name)?;
        let Attempt::Granted(grant) = store.attempt(&ticket).await? else {
            return Err(Failure::new("a free lock was refused"));
        };
        ctx.store().await?.break_lock(&ticket.name).await?;
        let fenced = Fenced::new(inner::<EtcdStore>(&store)?, ticket, grant.token);
        let work = Txn::new().and_then([TxnOp::put("stock", "stale", None)]);
        let answer = fenced.commit(work).await;
        let refused = matches!(answer, Err(FencedError::Fenced));
        ensure(refused, format!("{answer:?}"))
    }
}

/// What only a store in a database with a server can be asked.
mod sql {
    use std::time::Duration;

    use conformance_tests::task::spawn;
    use conformance_tests::{Case, Ctx, Failure, Outcome, ensure};
    use lockkit_core::contract::Renewal;
    use lockkit_core::url::StoreUrl;
    use lockkit_core::{Guard, LockClient};
    use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
    use sqlx::postgres::PgConnectOptions;
    use sqlx::{AssertSqlSafe, ConnectOptions as _};
    use tokio::time::{sleep, timeout};

    pub(super) fn cases() -> Vec<Case> {
        vec![
            Case::new(locked_row_stops_no_other_renewal),
            Case::new(no_renewal_shortens_a_lease),
        ]
    }

    /// Locks a row as a stranger does, for so long.
    async fn lock_row(url: StoreUrl, name: String, span: Duration) -> Outcome {
        let missing = || Failure::new("the store has no host");
        let host = url.hosts().first().ok_or_else(missing)?;
        let (host, port) = (host.name(), host.port().ok_or_else(missing)?);
        let user = url.user().unwrap_or_default();
        let lock = format!("select 1 from lockkit_locks where name = '{name}' for update");
        let lock = AssertSqlSafe(lock);
        if url.scheme() == "mysql" {
            let options = MySqlConnectOptions::new()
                .host(host)
                .port(port)
                .username(user);
            let options = options.password(url.password().unwrap_or_default());
            let options = options.ssl_mode(MySqlSslMode::Disabled);
            let options = options.database(url.path().trim_matches('/'));
            let mut connection = options.connect().await?;
            sqlx::raw_sql("begin").execute(&mut connection).await?;
            sqlx::raw_sql(lock).execute(&mut connection).await?;
            sleep(span).await;
            sqlx::raw_sql("rollback").execute(&mut connection).await?;
        } else {
            let options = PgConnectOptions::new_without_pgpass().host(host).port(port);
            let options = options.username(user).database("postgres");
            let mut connection = options.connect().await?;
            sqlx::raw_sql("begin").execute(&mut connection).await?;
            sqlx::raw_sql(lock).execute(&mut connection).await?;
            sleep(span).await;
            sqlx::raw_sql("rollback").execute(&mut connection).await?;
        }
        Ok(())
    }

    /// Asked for less, a store goes on with what it has.
    async fn no_renewal_shortens_a_lease(ctx: &Ctx) -> Outcome {
        let store = ctx.store().await?;
        let ticket = ctx.ticket(&ctx.name())?;
        let long = ticket.clone().with_ttl(ctx.ttl() * 20);
        store.attempt(&long).await?;
        for answer in store.renew(std::slice::from_ref(&ticket)).await {
            ensure(matches!(answer?, Renewal::Renewed { .. }), "not renewed")?;
        }
        let state = store.inspect(&ticket.name).await?;
        let left = state.and_then(|state| state.remaining);
        let kept = left.is_some_and(|left| left > ctx.ttl() * 10);
        store.release(&ticket).await?;
        ensure(kept, format!("{left:?} left of {:?}", long.ttl))
    }

    /// Renews all holds at once until the row of one of them is locked: it is skipped then, and not
    /// waited for.
    async fn renew_until_skipped(
        ctx: &Ctx,
        client: &LockClient,
        guards: &[Guard],
        locked: usize,
    ) -> Outcome {
        let tickets: Vec<_> = guards.iter().map(|guard| guard.ticket().clone()).collect();
        loop {
            let renewal = timeout(ctx.ttl(), client.backend().renew(&tickets)).await;
            let waits = |_| Failure::new("the renewals wait for a locked row");
            let answers = renewal.map_err(waits)?;
            let skipped = answers.get(locked).is_some_and(Result::is_err);
            for (number, answer) in answers.into_iter().enumerate() {
                if number != locked {
                    ensure(matches!(answer?, Renewal::Renewed { .. }), "not renewed")?;
                }
            }
            if skipped {
                return Ok(());
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn locked_row_stops_no_other_renewal(ctx: &Ctx) -> Outcome {
        let url = ctx.namespace().url().unwrap_or_default().parse()?;
        let client = ctx.client().await?;
        let mut guards = Vec::new();
        // Enough for a batch.
        for number in 0..8 {
            guards.push(client.lock(format!("held/{number}"))?.acquire().await?);
        }
        let stranger = spawn(lock_row(url, "held/3".to_owned(), ctx.ttl() * 3));
        renew_until_skipped(ctx, &client, &guards, 3).await?;
        sleep(ctx.ttl() * 2).await;
        for (number, guard) in guards.iter().enumerate() {
            if number != 3 {
                guard.check()?;
            }
        }
        let stuck = guards.swap_remove(3);
        ensure(
            stuck.check().is_err(),
            "a hold without renewals is still held",
        )?;
        stranger.soon().await??;
        for guard in guards {
            guard.release().await?;
        }
        Ok(())
    }
}
