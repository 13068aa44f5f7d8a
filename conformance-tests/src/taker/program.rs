//! The program side of a lock-taker.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{DistributedLock, Guard, Lease, LockClient};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

use super::{DONE, Mixed, Worker, Writer};
use crate::failure::{Failure, Outcome};
use crate::history::Recorder;
use crate::sections;

/// Acts as a lock-taker: the whole `main` of such a program. `open` opens the store at a URL.
///
/// Its arguments are the URL and the lease in milliseconds. It ends with its standard input, and on
/// Linux with the process that started it.
pub fn serve<F>(open: F) -> ExitCode
where
    F: AsyncFn(&str) -> Outcome<Arc<dyn DistributedLock>>,
{
    serve_program(open, None)
}

/// The same for a store that guards writes: `writer` does one under a hold.
pub fn serve_writing<F>(open: F, writer: Writer) -> ExitCode
where
    F: AsyncFn(&str) -> Outcome<Arc<dyn DistributedLock>>,
{
    serve_program(open, Some(writer))
}

fn serve_program<F>(open: F, writer: Option<Writer>) -> ExitCode
where
    F: AsyncFn(&str) -> Outcome<Arc<dyn DistributedLock>>,
{
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(ttl)) = (arguments.next(), arguments.next()) else {
        return ExitCode::from(64);
    };
    match run(&url, &ttl, open, writer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Without a reader there is nothing left to do.
            drop(writeln!(io::stderr(), "lock-taker: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn run<F>(url: &str, ttl: &str, open: F, writer: Option<Writer>) -> Outcome
where
    F: AsyncFn(&str) -> Outcome<Arc<dyn DistributedLock>>,
{
    // A frozen process does not see the end of its input.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let ttl = Duration::from_millis(ttl.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let store = open(url).await?;
        let client = LockClient::builder_arc(store).lease(Lease::renewed(ttl));
        let mut program = Program::new(client.build()?);
        program.writer = writer;
        url.clone_into(&mut program.url);
        program.obey().await
    })
}

struct Program {
    url: String,
    client: LockClient,
    recorder: Recorder,
    held: Option<Held>,
    watches: JoinSet<()>,
    writer: Option<Writer>,
}

struct Held {
    hold: u64,
    guard: Guard,
    worker: Worker,
}

impl Program {
    fn new(client: LockClient) -> Self {
        Self {
            url: String::new(),
            client,
            recorder: Recorder::writing_to(io::stdout()),
            held: None,
            watches: JoinSet::new(),
            writer: None,
        }
    }

    async fn obey(mut self) -> Outcome {
        say(DONE)?;
        let mut commands = BufReader::new(tokio::io::stdin()).lines();
        while let Some(command) = commands.next_line().await? {
            let words: Vec<&str> = command.split(' ').collect();
            match words[..] {
                ["acquire", name] => self.acquire(name).await?,
                ["check"] => self.held()?.check(),
                ["put"] => self.put().await?,
                ["release"] => self.release().await?,
                ["work", name, millis] => {
                    let worker = self.worker(name)?;
                    worker.work(Duration::from_millis(millis.parse()?)).await;
                }
                ["write", name, millis] => {
                    let writer = self.writer.ok_or_else(|| Failure::new("no writer"))?;
                    let (worker, span) = (self.worker(name)?, millis.parse()?);
                    let span = Duration::from_millis(span);
                    worker.write(&self.client, writer, span).await;
                }
                ["mix", millis, ref names @ ..] => {
                    let mixed = Mixed::new(self.client.clone(), names, self.recorder.clone());
                    let span = Duration::from_millis(millis.parse()?);
                    mixed.with_long_holds().work(span).await?;
                }
                ["sections", name, millis] => {
                    let sections = sections::open(&self.url, self.client.lock(name)?)?;
                    let (worker, span) = (self.worker(name)?, millis.parse()?);
                    let span = Duration::from_millis(span);
                    worker.run_sections(&sections, span).await?;
                }
                _ => return Err(Failure::new(format!("no command is `{command}`"))),
            }
            say(DONE)?;
        }
        Ok(())
    }

    fn worker(&self, name: &str) -> Outcome<Worker> {
        Ok(Worker::new(self.client.lock(name)?, self.recorder.clone()))
    }

    fn held(&self) -> Outcome<&Held> {
        self.held
            .as_ref()
            .ok_or_else(|| Failure::new("nothing is held"))
    }

    async fn acquire(&mut self, name: &str) -> Outcome {
        let worker = self.worker(name)?;
        let hold = self.recorder.next_hold();
        if let Some(guard) = worker.acquire(hold).await {
            self.watches.spawn(worker.watch(hold, &guard));
            let held = Held {
                hold,
                guard,
                worker,
            };
            held.check();
            self.held = Some(held);
        }
        Ok(())
    }

    async fn put(&self) -> Outcome {
        let writer = self.writer.ok_or_else(|| Failure::new("no writer"))?;
        let held = self.held()?;
        let worker = &held.worker;
        worker
            .write_once(&self.client, writer, held.hold, &held.guard)
            .await;
        Ok(())
    }

    async fn release(&mut self) -> Outcome {
        self.held()?;
        if let Some(held) = self.held.take() {
            held.worker.release(held.hold, held.guard).await;
        }
        Ok(())
    }
}

impl Held {
    fn check(&self) {
        self.worker.check(self.hold, &self.guard);
    }
}

fn say(line: &str) -> Outcome {
    Ok(writeln!(io::stdout(), "{line}")?)
}
