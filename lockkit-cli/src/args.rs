//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use lockkit::LockName;
use lockkit::url::parse_duration;

use crate::exit::Code;

const EXIT_CODES: &str = "\
Exit codes:
  0-255  of `run`: the exit code of CMD; 128 + N if signal N ended CMD or the wait
  64     an argument is wrong
  69     the store cannot be reached, or it failed; the lock was lost before CMD was started
  70     internal error of lockkit
  71     error of the operating system, such as no process or pipe
  75     the lock was not acquired in time
  76     the lock was lost while CMD ran; CMD was terminated
  126    CMD is not executable
  127    CMD, or `lockkit-bench`, was not found";

/// Runs a program while it holds a named lock, on one machine or across many.
#[derive(Debug, Parser)]
#[command(name = "lockkit", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
#[command(
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// The lock store, as in `redis://host/` or `file:/var/lib/lockkit`.
    ///
    /// Without it and without `LOCKKIT_URL`, the locks are files in `$XDG_STATE_HOME/lockkit`, which is
    /// `~/.local/state/lockkit`, or `/var/lib/lockkit` for root without a home: they lock between the
    /// programs of one user on one machine. An empty URL is refused. Put a password into `LOCKKIT_URL`,
    /// or into a file that `LOCKKIT_URL_FILE` names, because other users can read the arguments of a process.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LOCKKIT_URL",
        hide_env_values = true
    )]
    pub(crate) url: Option<String>,
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Runs CMD while holding NAME.
    Run(RunArgs),
    /// Shows one lock.
    Status(StatusArgs),
    /// Shows the locks that are held or waited for.
    List(ListArgs),
    /// Prints a line for each change of a lock, until a signal ends it.
    Watch(WatchArgs),
    /// Ends the hold of NAME, even one of another client.
    Break(BreakArgs),
    /// Prints the statements that create the table of an SQL store; opens no connection.
    Schema(SchemaArgs),
    /// Deletes rows or files of locks that were not used for a long time.
    Purge(PurgeArgs),
    /// Measures lock stores and compares them: runs the program `lockkit-bench`.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Bench {
        /// The arguments of `lockkit-bench`; `--help` shows them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Prints the completion script of a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Prints a manual page.
    Man {
        /// The subcommand; without it, the page of lockkit.
        command: Option<String>,
    },
}

const RUN_HELP: &str = "\
CMD leads its own process group and gets LOCKKIT_NAME, LOCKKIT_TOKEN and LOCKKIT_MODE (exclusive, shared or \
permit) in its environment, and LOCKKIT_HELD with the names and tokens of all locks that it runs under, as \
JSON. The token grows with every grant: send it with every write, and let the receiver refuse smaller ones. \
If LOCKKIT_URL contains a password, CMD gets an empty LOCKKIT_URL; --keep-url passes the URL on.

`lockkit run` passes signals on to the group of CMD. Those that end programs go to all descendants of \
CMD (on Linux). The group gets the terminal.

When CMD ends, the processes left in its group get SIGTERM, then SIGKILL after --kill-after; then the \
lock is released. With --leave they continue without the lock. A daemon with its own group or session \
continues without the lock, unless a signal ended CMD, or CMD exits with 128 and the number of SIGHUP, SIGINT, \
SIGQUIT or SIGTERM.

When the lock is lost, CMD and all its descendants get SIGTERM, then SIGKILL, and the exit code is 76. \
This begins --kill-after, at most a third of the lease, before the lease ends, so that nothing runs \
longer than the lease. Only `lockkit break` gives no warning: CMD can run beside the next holder until \
the next renewal, at most a third of the lease, and then for --kill-after. When `lockkit run` is killed, \
even by SIGKILL, CMD and its descendants are killed too. When it is stopped for too long, they are \
terminated. A job that Ctrl-Z stopped is stopped as a whole before its lease ends (on Linux), and terminated if \
it is continued too late.

A lock keeps two jobs from running at the same time, but the second one can run afterwards: if the \
clock of its host is late and the first job is short, it finds the lock free. --at-least 50s keeps the lock for \
that time.";

/// `lockkit run`.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// Gives up with exit code 75 after this time, as in `10s` or `500ms`; without it, waits for ever.
    ///
    /// A store that does not respond then takes up to two request timeouts longer, and the exit code is 69. One
    /// that cannot be reached at the start is retried for the same time; without --wait, for the `outage` of the
    /// URL, 30s by default.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Gives up with exit code 75 at once if the lock is held.
    #[arg(long, short = 'n')]
    pub(crate) no_wait: bool,
    /// Holds this lock as well, together with NAME or not at all. Repeat it for more names.
    #[arg(long, value_name = "NAME")]
    pub(crate) also: Vec<LockName>,
    /// Shares the lock with all other commands that have this option, as a reader. A command without it
    /// excludes them and waits for its turn.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Lets up to N commands with this option hold the lock at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) permits: Option<u32>,
    /// A note that `status`, `list` and `watch` show while CMD runs, such as the number of an invoice.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// The lease, by default 30s: after this time others can get the lock when this machine fails or loses its
    /// network.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Keeps the lock for at least this time, even if CMD ends sooner.
    ///
    /// For jobs that several hosts start at the same time of day, with clocks that differ. Where a lease
    /// ends the hold, `lockkit run` exits with CMD and leaves the rest to the lease, once a lease can be that
    /// long. Elsewhere, and if the rest is shorter than the lease, it stays until then. The stay ends with a
    /// signal that ends programs, with SIGINT, SIGQUIT or SIGTERM while CMD runs, and with SIGHUP, SIGINT,
    /// SIGQUIT or SIGTERM that ended CMD.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) at_least: Option<Duration>,
    /// The time from SIGTERM to SIGKILL, for CMD when the lock is lost (at most a third of the lease), and
    /// for processes that CMD left running.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// The exit code when the lock was not acquired in time, instead of 75; flock(1) has the same option.
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = Code::NOT_ACQUIRED.0)]
    pub(crate) conflict_exit_code: u8,
    /// Passes `LOCKKIT_URL` on to CMD even if it contains a password.
    #[arg(long)]
    pub(crate) keep_url: bool,
    /// Lets processes that CMD leaves in its process group continue without the lock.
    #[arg(long)]
    pub(crate) leave: bool,
    /// Prints the store, the token and the holder that the command waits for, even if there is no terminal.
    #[arg(long, short = 'v', conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Prints nothing while the command waits, and nothing when it gives up.
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// The lock: any text of 1 to 512 bytes that does not begin with `-`.
    pub(crate) name: LockName,
    /// The program and its arguments, after `--`.
    #[arg(value_name = "CMD", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// `lockkit status`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if the lock is held, 1 if it is free, 69 if the store does not respond."
)]
pub(crate) struct StatusArgs {
    /// The lock.
    pub(crate) name: LockName,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// `lockkit list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The beginning of the names to show; without it, all names.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// `lockkit watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The beginning of the names to show; without it, all names.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// The time between two polls, at least 100ms. A hold that is shorter can be missed.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, default_value = "1s")]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// `lockkit break`.
#[derive(Debug, Args)]
#[command(
    after_help = "The next waiter gets the lock at once. The former holder can continue until its next \
renewal, at most a third of its lease; a program under `lockkit run` then has its --kill-after.\n\n\
Exit codes: 0 if a hold was ended, 1 if there was none, 64 if --yes is missing."
)]
pub(crate) struct BreakArgs {
    /// The lock.
    pub(crate) name: LockName,
    /// Ends the hold without a question. Otherwise the command shows the hold and, at a terminal, asks.
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// `lockkit schema`.
#[derive(Debug, Args)]
#[command(
    after_help = "The comments in the output name the grants that an application needs on a server.\n\n\
Exit codes: 0, or 64 if the URL does not name an SQL store."
)]
pub(crate) struct SchemaArgs {
    /// The store, as in `postgres://db/?table=app.locks`; by default that of --url or `LOCKKIT_URL`.
    #[arg(value_name = "URL")]
    pub(crate) store: Option<String>,
}

/// `lockkit purge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Tokens still grow: the next one of a name is at least the store's clock in microseconds. \
Redis deletes unused tokens itself; etcd and ZooKeeper keep none. Do not purge a directory whose files flock(1) locks too.\n\n\
Exit codes: 0, 64 if the store keeps nothing that can be purged, 69 if it does not respond."
)]
pub(crate) struct PurgeArgs {
    /// The store; by default that of --url or `LOCKKIT_URL`.
    #[arg(value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Deletes only locks that were not used for this time, as in `7d`; in a database, at least `1d`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) older_than: Duration,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// The output format.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Form {
    /// Prints JSON; the README of `lockkit-cli` describes its fields.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads a time as in the URL of a store.
fn time(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("a time must not be negative".to_owned());
    }
    parse_duration(text).map_err(|error| error.to_string())
}
