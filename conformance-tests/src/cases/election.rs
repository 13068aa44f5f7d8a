//! A leader is known by its note, which counts while it leads. INV-21.

use lockkit_core::contract::{Attempt, DistributedLock, Ticket};
use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{Election, Error, Leader, Outcome as Effect};
use tokio::time::sleep;

use crate::case::{Case, Need};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::task::{soon, spawn, within};

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        Case::new(value_is_the_leaders),
        Case::new(value_lasts_as_long_as_its_leader),
        Case::new(next_candidate_leads_in_a_later_term),
        Case::new(observer_sees_each_leader_once),
        Case::new(late_note_does_nothing),
        Case::new(failed_campaign_leaves_no_candidate),
        Case::new(cancelled_campaign_leaves_no_candidate),
        Case::new(note_that_is_no_line_is_refused),
    ];
    cases
        .into_iter()
        .map(|case| case.needs(Need::Notes))
        .collect()
}

async fn elections(ctx: &Ctx) -> Outcome<(Election, Election)> {
    let ((a, b), name) = (ctx.two().await?, ctx.name());
    Ok((a.election(name.as_str())?, b.election(name.as_str())?))
}

async fn leads(election: &Election, value: &str) -> Outcome<Leader> {
    let leader = election.leader().await?;
    let leader = leader.ok_or_else(|| Failure::new("nobody leads"))?;
    ensure(
        leader.value.as_deref() == Some(value),
        format!("{value}: {leader:?}"),
    )?;
    Ok(leader)
}

async fn vacant(election: &Election) -> Outcome {
    let leader = election.leader().await?;
    ensure(leader.is_none(), format!("{leader:?}"))
}

/// Any client reads it, with the term; a later note takes its place.
async fn value_is_the_leaders(ctx: &Ctx) -> Outcome {
    let (a, b) = elections(ctx).await?;
    vacant(&b).await?;
    let term = a.campaign("10.0.0.5:7001 \"é\"").await?;
    let leader = leads(&b, "10.0.0.5:7001 \"é\"").await?;
    ensure(leader.term == Some(term.token()), format!("{leader:?}"))?;
    ensure(
        leader.holder == term.holder().to_string(),
        format!("{leader:?}"),
    )?;
    term.note("another").await?;
    leads(&b, "another").await?;
    term.release().await?;
    vacant(&a).await?;
    // Nothing of it is left for the next one.
    let guard = ctx.client().await?.lock(a.name())?.acquire().await?;
    let next = a.leader().await?;
    ensure(
        next.is_some_and(|leader| leader.value.is_none()),
        "a former leader's value is shown",
    )?;
    Ok(guard.release().await?)
}

/// Renewals keep it.
async fn value_lasts_as_long_as_its_leader(ctx: &Ctx) -> Outcome {
    let (a, b) = elections(ctx).await?;
    let term = a.campaign("lasting").await?;
    sleep(ctx.freed_after()).await;
    term.check()?;
    leads(&b, "lasting").await?;
    Ok(term.release().await?)
}

/// When the leader goes.
async fn next_candidate_leads_in_a_later_term(ctx: &Ctx) -> Outcome {
    let (a, b) = elections(ctx).await?;
    let first = a.campaign("first").await?;
    let candidate = b.clone();
    let mut waiting = spawn(async move { candidate.campaign("second").await });
    waiting.waits_for(ctx.ttl() / 4).await?;
    leads(&b, "first").await?;
    let term = first.token();
    drop(first);
    let second = waiting.soon().await??;
    ensure(second.token() > term, "the term did not grow")?;
    leads(&a, "second").await?;
    Ok(second.release().await?)
}

/// The present one at once, then the changes, then nobody.
async fn observer_sees_each_leader_once(ctx: &Ctx) -> Outcome {
    let (a, b) = elections(ctx).await?;
    let mut seen = b.observe();
    ensure(soon(seen.changed()).await??.is_none(), "somebody leads")?;
    let term = a.campaign("one").await?;
    let mut leader = soon(seen.changed()).await??;
    if leader.as_ref().is_some_and(|leader| leader.value.is_none()) {
        // Seen between its grant and its note.
        leader = soon(seen.changed()).await??;
    }
    let leader = leader.ok_or_else(|| Failure::new("nobody leads"))?;
    ensure(
        leader.value.as_deref() == Some("one"),
        format!("{leader:?}"),
    )?;
    let again = within(ctx.ttl(), seen.changed()).await;
    ensure(again.is_err(), format!("shown again: {again:?}"))?;
    term.release().await?;
    ensure(soon(seen.changed()).await??.is_none(), "somebody leads")
}

/// Neither that of a waiter nor that of a former holder is shown, and none makes a hold.
async fn late_note_does_nothing(ctx: &Ctx) -> Outcome {
    let (store, name) = (ctx.store().await?, ctx.name());
    let (one, other) = (ctx.ticket(&name)?, ctx.ticket(&name)?);
    ensure(!store.note(&one, "early").await?, "a note made a hold")?;
    holds(&*store, &one).await?;
    ensure(store.note(&one, "mine").await?, "the holder was refused")?;
    store.attempt(&other).await?;
    ensure(!store.note(&other, "waits").await?, "a waiter was noted")?;
    shows(&*store, &one, Some("mine")).await?;
    store.release(&one).await?;
    store.release(&other).await?;
    ensure(!store.note(&one, "late").await?, "a note came late")?;
    let state = store.inspect(&one.name).await?;
    ensure(state.is_none(), format!("{state:?}"))?;
    let next = ctx.ticket(&name)?;
    holds(&*store, &next).await?;
    ensure(!store.note(&one, "late").await?, "a note came late")?;
    shows(&*store, &next, None).await?;
    store.release(&next).await?;
    Ok(())
}

async fn holds(store: &dyn DistributedLock, ticket: &Ticket) -> Outcome {
    let answer = store.attempt(ticket).await?;
    ensure(matches!(answer, Attempt::Granted(_)), format!("{answer:?}"))
}

async fn shows(store: &dyn DistributedLock, ticket: &Ticket, note: Option<&str>) -> Outcome {
    let state = store.inspect(&ticket.name).await?;
    let shown = state.iter().flat_map(|state| &state.holders);
    let shown: Vec<_> = shown
        .map(|holder| (holder.id.clone(), holder.note.as_deref()))
        .collect();
    ensure(
        shown == [(ticket.holder.to_string(), note)],
        format!("{state:?}"),
    )
}

/// Where the note fails, or its reply is lost, the lock is given back.
async fn failed_campaign_leaves_no_candidate(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let election = client.election(ctx.name())?;
    for (fault, injected) in [Fault::Fail(Effect::Unavailable), Fault::DropReply]
        .into_iter()
        .zip(1..)
    {
        faults.inject(Rule::new(fault).on(Operation::Note).times(1));
        match soon(election.campaign("never")).await? {
            Err(Error::Backend(_)) => {}
            answer => return Err(Failure::new(format!("{answer:?}"))),
        }
        ensure(
            faults.injected() == injected,
            "the fault did not take place",
        )?;
        vacant(&election).await?;
    }
    let term = soon(election.campaign("now")).await??;
    Ok(term.release().await?)
}

/// Neither while it waits nor while its note is on its way.
async fn cancelled_campaign_leaves_no_candidate(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let election = client.election(ctx.name())?;
    let other = ctx.client().await?.election(election.name())?;
    let held = other.campaign("held").await?;
    let candidate = election.clone();
    let mut waiting = spawn(async move { candidate.campaign("waits").await });
    waiting.waits_for(ctx.ttl() / 4).await?;
    waiting.cancel().await;
    held.release().await?;
    soon(client.drain()).await?;
    vacant(&other).await?;

    faults.inject(Rule::new(Fault::Hang).on(Operation::Note));
    let candidate = election.clone();
    let proclaiming = spawn(async move { candidate.campaign("stalled").await });
    soon(faults.called(Operation::Note, 1)).await?;
    proclaiming.cancel().await;
    faults.heal();
    soon(client.drain()).await?;
    vacant(&other).await?;
    let term = soon(other.campaign("free")).await??;
    leads(&other, "free").await?;
    Ok(term.release().await?)
}

/// Before anything is sent.
async fn note_that_is_no_line_is_refused(ctx: &Ctx) -> Outcome {
    let (a, _) = elections(ctx).await?;
    let term = a.campaign(&"x".repeat(512)).await?;
    for text in ["x".repeat(513), "two\nlines".into(), "\u{7f}".into()] {
        match term.note(&text).await {
            Err(Error::InvalidOption { .. }) => {}
            answer => return Err(Failure::new(format!("{answer:?}"))),
        }
    }
    leads(&a, &"x".repeat(512)).await?;
    term.note("").await?;
    leads(&a, "").await?;
    Ok(term.release().await?)
}
