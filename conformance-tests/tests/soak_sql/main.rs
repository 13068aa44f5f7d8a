//! Eight processes on one lock of one database, half of them pinned, killed and frozen at random; each
//! turn counts one up in a transaction that commits only while the hold stands.
//!
//! `LOCKKIT_SOAK=60` gives it a minute. The program plays the processes too.

#![expect(
    clippy::print_stdout,
    reason = "the figures are for people, and the processes talk so"
)]

mod worker;

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::servers::{MysqlPrograms, PostgresPrograms};

fn main() -> ExitCode {
    worker::serve().unwrap_or_else(|| TestSuite::main(1, tests))
}

fn tests() -> TestSuite {
    let postgres = TestSuite::new("soak-of-postgres", PostgresPrograms::system().missing());
    let mariadb = TestSuite::new("soak-of-mariadb", MysqlPrograms::mariadb().missing());
    postgres
        .test(soak::eight_processes_on_postgres)
        .and(mariadb.test(soak::eight_processes_on_mariadb))
}

mod soak {
    use std::collections::{HashMap, HashSet};
    use std::process::Stdio;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use conformance_tests::checker::check;
    use conformance_tests::history::{Event, History, Op, Phase, parse};
    use conformance_tests::servers::{
        MysqlPrograms, MysqlServer, PostgresPrograms, PostgresServer,
    };
    use conformance_tests::task::{PATIENCE, Task, soak_length, spawn, within};
    use conformance_tests::{Failure, Outcome, ensure};
    use lockkit_core::Lock;
    use rustix::process::{Pid, Signal, kill_process};
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::process::{Child, Command};
    use tokio::time::{Instant, sleep};

    use crate::worker::{LOCK, MARK, TTL};

    const PROCESSES: u32 = 8;
    /// Short where everything is tested.
    const SHORT: Duration = Duration::from_secs(6);

    pub(crate) async fn eight_processes_on_postgres() -> Outcome {
        let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
        let sql = "create table counter (n bigint); insert into counter values (0); \
                   create table commits (id bigserial primary key, worker bigint, turn bigint, \
                   token bigint)";
        server.run(sql).await?;
        let told = soak(&server.url("postgres")).await?;
        let counter = server.ask("select n from counter").await?;
        let commits = "select worker || ' ' || turn || ' ' || token from commits order by id";
        judge(&told, &counter, &server.ask(commits).await?)?;
        let errors = server.errors();
        // A process that is killed in the middle of a word is an error of the connection.
        let errors: Vec<&String> = errors.iter().filter(|it| !it.contains("FATAL")).collect();
        ensure(errors.is_empty(), format!("{errors:?}"))
    }

    pub(crate) async fn eight_processes_on_mariadb() -> Outcome {
        let server = MysqlServer::start(&MysqlPrograms::mariadb(), &[]).await?;
        let sql = "create database app; create table app.counter (n bigint); \
                   insert into app.counter values (0); \
                   create table app.commits (id bigint auto_increment primary key, worker bigint, \
                   turn bigint, token bigint)";
        server.run(sql).await?;
        let url = format!("mysql://admin@127.0.0.1:{}/app", server.port());
        let told = soak(&url).await?;
        let counter = server.ask("select n from app.counter").await?;
        let commits = "select concat(worker, ' ', turn, ' ', token) from app.commits order by id";
        judge(&told, &counter, &server.ask(commits).await?)
    }

    /// What the processes reported.
    #[derive(Debug, Default)]
    struct Told {
        events: Vec<Event>,
        /// The last word on each turn of each worker.
        turns: HashMap<(u32, u64), String>,
        /// How many were frozen during a hold for longer than its lease.
        stale: u32,
        killed: u32,
        /// Lines that mean nothing, such as the failure of a process.
        unreadable: Vec<String>,
    }

    impl Told {
        /// How many turns were refused because their hold had ended.
        fn fenced(&self) -> usize {
            self.turns.values().filter(|it| *it == "fenced").count()
        }

        /// Whether enough has happened for a judgement.
        fn is_enough(&self) -> bool {
            self.stale > 0 && self.killed > 0 && self.fenced() > 0
        }

        /// Reads what a worker wrote.
        fn read(&mut self, number: u32, line: String) {
            let readable = match line.strip_prefix("turn ") {
                None => parse(&line).map(|event| self.events.push(event)).is_ok(),
                Some(words) => words.split_once(' ').is_some_and(|(turn, word)| {
                    let turn = turn.parse().map(|turn| (number, turn));
                    turn.map(|turn| self.turns.insert(turn, word.to_owned()))
                        .is_ok()
                }),
            };
            if !readable {
                self.unreadable.push(line);
            }
        }
    }

    struct Worker {
        child: Child,
        reader: Task<()>,
    }

    fn start(url: &str, number: u32, told: &Arc<Mutex<Told>>) -> Outcome<Worker> {
        let pin = number.is_multiple_of(2);
        let mut child = Command::new(std::env::current_exe()?)
            .args([MARK, url, &pin.to_string(), &number.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || Failure::new("the process has no pipe");
        let output = child.stdout.take().ok_or_else(missing)?;
        let told = Arc::clone(told);
        let reader = spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.read(number, line);
            }
        });
        Ok(Worker { child, reader })
    }

    fn signal(worker: &Worker, signal: Signal) -> Outcome {
        let id = worker.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Failure::new("a process has ended by itself"))?;
        Ok(kill_process(id, signal)?)
    }

    /// The worker that holds the lock, as its label says.
    async fn holder(lock: &Lock, workers: &[Worker]) -> Outcome<Option<usize>> {
        let state = lock.inspect().await?;
        let label = state.and_then(|state| state.holders.first()?.label.clone());
        let holds = |worker: &Worker| {
            let word = worker.child.id().map(|id| format!(":{id} "));
            word.is_some_and(|word| label.as_ref().is_some_and(|label| label.contains(&word)))
        };
        Ok(workers.iter().position(holds))
    }

    /// Freezes the holder, for at least `least` leases. Returns whether its lease ended meanwhile.
    async fn freeze_holder(lock: &Lock, workers: &[Worker], least: f64) -> Outcome<bool> {
        let Some(frozen) = holder(lock, workers).await? else {
            return Ok(false);
        };
        signal(&workers[frozen], Signal::STOP)?;
        let holds = holder(lock, workers).await? == Some(frozen);
        let leases = least + fastrand::f64() * 2.0;
        sleep(TTL.mul_f64(leases)).await;
        signal(&workers[frozen], Signal::CONT)?;
        Ok(holds && leases > 1.1)
    }

    async fn soak(url: &str) -> Outcome<Told> {
        let length = soak_length(SHORT)?;
        let told = Arc::new(Mutex::new(Told::default()));
        let mut workers = Vec::new();
        let mut readers = Vec::new();
        let mut number = 0;
        for _ in 0..PROCESSES {
            workers.push(start(url, number, &told)?);
            number += 1;
        }
        let lock = lockkit::connect(url).await?.lock(LOCK)?;
        let lock_told = || told.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + length;
        // In a short time, chance may meet no holder at the moment that counts.
        let last = end + PATIENCE * 6;
        loop {
            let (seen, now) = (lock_told().is_enough(), Instant::now());
            if now > end && (seen || now > last) {
                break;
            }
            sleep(Duration::from_millis(fastrand::u64(100..500))).await;
            if fastrand::bool() {
                let least = if seen { 0.2 } else { 1.2 };
                let stale = freeze_holder(&lock, &workers, least).await?;
                lock_told().stale += u32::from(stale);
                continue;
            }
            let index = fastrand::usize(..workers.len());
            // With the same kind of hold.
            let next = number + u32::from(number % 2 != u32::try_from(index)? % 2);
            let mut old = std::mem::replace(&mut workers[index], start(url, next, &told)?);
            number = next + 1;
            old.child.kill().await?;
            lock_told().killed += 1;
            readers.push(old.reader);
        }
        // The end of their input is the end of their work.
        for mut worker in workers {
            drop(worker.child.stdin.take());
            let status = within(Duration::from_secs(30), worker.child.wait()).await??;
            ensure(status.success(), format!("a process ended with {status}"))?;
            readers.push(worker.reader);
        }
        for reader in readers {
            reader.soon().await?;
        }
        Ok(std::mem::take(&mut *lock_told()))
    }

    fn judge(told: &Told, counter: &[String], commits: &[String]) -> Outcome {
        let unreadable = &told.unreadable;
        ensure(unreadable.is_empty(), format!("{unreadable:?}"))?;
        let looks = |event: &&Event| event.op == Op::Check && event.phase == Phase::Ok;
        let looks = told.events.iter().filter(looks).count();
        ensure(looks >= 30, format!("only {looks} looks"))?;
        check(&History::new(told.events.clone()))?;
        let counter: usize = counter[0].parse()?;
        let all = commits.len();
        ensure(
            counter == all,
            format!("{counter} counted in {all} commits"),
        )?;
        let (mut last, mut kept) = (0, HashSet::new());
        for commit in commits {
            let words: Vec<u64> = commit
                .split(' ')
                .map(str::parse)
                .collect::<Result<_, _>>()?;
            let [worker, turn, token] = words[..] else {
                return Err(Failure::new(format!("a commit says {commit}")));
            };
            ensure(
                token > last,
                format!("token {token} committed after {last}"),
            )?;
            last = token;
            let turn = (u32::try_from(worker)?, turn);
            // Killed before it could say how it ended, or cut off.
            let word = told.turns.get(&turn).map_or("", String::as_str);
            let may_be = ["", "asked", "ok", "unknown"].contains(&word);
            ensure(
                may_be,
                format!("turn {turn:?} committed, but said {word:?}"),
            )?;
            kept.insert(turn);
        }
        let said_ok = told.turns.iter().filter(|(_, word)| *word == "ok");
        let said_ok: Vec<_> = said_ok.map(|(turn, _)| *turn).collect();
        let (fenced, stale) = (told.fenced(), told.stale);
        let lost = said_ok.iter().find(|turn| !kept.contains(turn));
        ensure(
            lost.is_none(),
            format!("turn {lost:?} said ok, and is not there"),
        )?;
        let reported = format!("{all} commits, {} reported, {fenced} fenced", said_ok.len());
        let killed = told.killed;
        println!(
            "{reported}; {looks} looks, {stale} frozen for longer than their lease, {killed} killed"
        );
        let enough = all >= 10 && stale >= 1 && fenced >= 1 && killed >= 1;
        ensure(enough, format!("{reported}, {killed} killed"))
    }
}
