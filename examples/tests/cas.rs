//! Both ways of each case end in the same state, however many take part.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_examples::Outcome;
use lockkit_examples::cas::chat_room::{ChatRoom, Move};
use lockkit_examples::cas::crowd::{Seen, Until, Way, run};
use lockkit_examples::cas::session::Session;
use lockkit_examples::cas::stock::Stock;
use lockkit_examples::cas::{Case, Db};
use lockkit_examples::server::Server;
use tokio::task::JoinSet;

const CONTENDERS: usize = 64;
const TURNS: Until = Until::Turns(3);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let required = std::env::var("LOCKKIT_REQUIRE").is_ok_and(|names| names.contains("all"));
    let here = |program: &str| {
        let asked = std::process::Command::new(program)
            .arg("--version")
            .output();
        asked.is_ok() || required
    };
    let (server, proxy) = (here("redis-server"), here("nutcracker"));
    let trials = vec![
        trial(server, "chat_room_ends_the_same", chat_room_ends_the_same),
        trial(server, "a_room_is_never_too_full", a_room_is_never_too_full),
        trial(server, "session_ends_the_same", session_ends_the_same),
        trial(
            server,
            "stock_ends_the_same_and_is_never_oversold",
            stock_ends_the_same,
        ),
        trial(
            server,
            "old_and_new_code_lose_no_update_side_by_side",
            old_and_new_side_by_side,
        ),
        trial(
            server && proxy,
            "the_lock_needs_no_watch_behind_a_proxy",
            behind_a_proxy,
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial<F, Fut>(here: bool, name: &str, body: F) -> Trial
where
    F: Fn() -> Fut + Send + 'static,
    Fut: Future<Output = Outcome>,
{
    let trial = Trial::test(name, move || {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime
            .block_on(body())
            .map_err(|error| Failed::from(error.to_string()))
    });
    if here {
        return trial;
    }
    let why = "skip: no `redis-server` or no `nutcracker` here; `cargo x setup` brings them";
    trial.with_ignored_flag(true).with_kind(why)
}

/// Lets 64 contenders update in both ways; returns the common final state.
async fn both<C: Case>(case: C) -> Outcome<(Vec<String>, [Seen; 2])> {
    let server = Server::own().await?;
    let mut db = server.connect().await?;
    let watched = run(&server, &case, Way::Watched, CONTENDERS, TURNS).await?;
    let before = case.state(&mut db).await?;
    let locked = run(&server, &case, Way::Locked, CONTENDERS, TURNS).await?;
    let after = case.state(&mut db).await?;
    if before != after {
        return Err(format!("before: {before:?}, after: {after:?}").into());
    }
    // Otherwise there was no contention.
    check(watched.retries > 0 && locked.retries == 0, "retries")?;
    check(watched.done == 192 && locked.done == 192, "updates")?;
    Ok((after, [watched, locked]))
}

fn check(right: bool, what: &str) -> Outcome {
    if right { Ok(()) } else { Err(what.into()) }
}

async fn chat_room_ends_the_same() -> Outcome {
    let (state, _) = both(ChatRoom::new("lobby", 64)).await?;
    let events: Vec<String> = (1..=192).map(|number| format!("event {number}")).collect();
    check(
        state.len() == 64 + 192 && state[64..] == events,
        "64 inside, 192 events",
    )
}

/// The number of members at the end is the limit in both ways, in any order of arrival.
async fn a_room_is_never_too_full() -> Outcome {
    let server = Server::own().await?;
    for way in [Way::Watched, Way::Locked] {
        let room = ChatRoom::new("small", 40);
        let mut db = server.connect().await?;
        room.reset(&mut db).await?;
        let mut tasks = JoinSet::new();
        for user in 0..CONTENDERS {
            let (room, mut db) = (room.clone(), server.connect().await?);
            let locks = lockkit::connect(server.url()).await?;
            tasks.spawn(async move {
                let user = format!("user {user}");
                match way {
                    Way::Watched => room
                        .move_watched(&mut db, &user, Move::Join)
                        .await
                        .map(drop),
                    _ => room.move_locked(&locks, &user, Move::Join).await,
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let state = room.state(&mut db).await?;
        check(
            state.len() == 80,
            "forty are inside, and each has come in once",
        )?;
    }
    Ok(())
}

async fn session_ends_the_same() -> Outcome {
    let (state, _) = both(Session::new("42")).await?;
    // 64 times the prices 100, 101 and 102.
    let cents = 64 * 303;
    let fields = [
        "items 192".to_owned(),
        format!("cents {cents}"),
        format!("discount {}", cents / 10),
        "version 192".to_owned(),
    ];
    check(state == fields, "every article is in the basket once")
}

async fn stock_ends_the_same() -> Outcome {
    let (state, _) = both(Stock::new("teapot", 100)).await?;
    check(
        state == ["left 0", "sold 100"],
        "all are sold and none twice",
    )
}

/// The step between the two: 32 of the old and 32 of the new at once.
async fn old_and_new_side_by_side() -> Outcome {
    let server = Server::own().await?;
    let stock = Stock::new("teapot", 150);
    let mut db = server.connect().await?;
    stock.reset(&mut db).await?;
    let mut tasks = JoinSet::new();
    for buyer in 0..CONTENDERS {
        let (stock, mut db) = (stock.clone(), server.connect().await?);
        let locks = lockkit::connect(server.url()).await?;
        tasks.spawn(async move {
            let mut bought = 0_u64;
            for number in 0..3 {
                let order = format!("order {number} of buyer {buyer}");
                let new = buyer % 2 == 0;
                bought += u64::from(if new {
                    stock.buy_beside_the_old(&mut db, &locks, &order).await?
                } else {
                    stock.buy_watched(&mut db, &order).await?.0
                });
            }
            Outcome::Ok(bought)
        });
    }
    let mut bought = 0;
    while let Some(ended) = tasks.join_next().await {
        bought += ended??;
    }
    let state = stock.state(&mut db).await?;
    check(bought == 150, "as many were bought as there were")?;
    check(state == ["left 0", "sold 150"], "no order was lost")
}

/// Nutcracker hangs up when it reads `WATCH` or `SUBSCRIBE`.
async fn behind_a_proxy() -> Outcome {
    let server = Server::own().await?;
    let proxy = server.behind_nutcracker().await?;
    let stock = Stock::new("teapot", 20);
    let mut db: Db = proxy.connect().await?;
    stock.reset(&mut db).await?;
    let watched = stock.buy_watched(&mut db, "an order").await;
    check(watched.is_err(), "the proxy lets WATCH pass")?;
    let mut tasks = JoinSet::new();
    for buyer in 0..16 {
        let stock = stock.clone();
        let locks = format!("{}/?wake=poll&poll=2ms..20ms", proxy.url());
        let locks = lockkit::connect(locks).await?;
        tasks.spawn(async move {
            for number in 0..2 {
                let order = format!("order {number} of buyer {buyer}");
                stock.buy_locked(&locks, &order).await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let state = stock.state(&mut server.connect().await?).await?;
    check(
        state == ["left 0", "sold 20"],
        "all are sold and none twice",
    )
}
