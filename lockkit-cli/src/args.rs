//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use lockkit::LockName;
use lockkit::url::parse_duration;

const EXIT_CODES: &str = "\
Exit codes:
  0-255  of `run`: CMD's own exit code; 128 + N if signal N ended CMD or the wait
  64     the arguments are wrong
  69     the lock store cannot be reached, or it failed
  70     a fault of lockkit itself
  71     the system gave no process, pipe or the like
  75     the lock was not acquired in time
  76     the lock was lost while CMD ran; CMD was ended
  126    CMD cannot be run
  127    CMD was not found, or `lockkit-bench`";

/// Runs a program while it holds a named lock, on one machine or across many.
#[derive(Debug, Parser)]
#[command(name = "lockkit", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
#[command(
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// Which store.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The lock store, as in `redis://host/` or `file:/var/lib/lockkit`.
    ///
    /// Without it and without `LOCKKIT_URL`, the locks are files in `$XDG_STATE_HOME/lockkit`, which is
    /// `~/.local/state/lockkit`, or `/var/lib/lockkit` for root without a home: they hold between the
    /// programs of one user on one machine. An empty URL is refused. Give a password by `LOCKKIT_URL`,
    /// or in a file that `LOCKKIT_URL_FILE` names, because other users can see the arguments of a process.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LOCKKIT_URL",
        hide_env_values = true
    )]
    pub(crate) url: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Runs CMD while holding NAME.
    Run(RunArgs),
    /// Shows one lock.
    Status(StatusArgs),
    /// Shows the locks that somebody holds or waits for.
    List(ListArgs),
    /// Prints a line for each change of the locks, until it is interrupted.
    Watch(WatchArgs),
    /// Ends the hold on NAME of any holder.
    Break(BreakArgs),
    /// Prints the statements that make the table of an SQL store; connects to nothing.
    Schema(SchemaArgs),
    /// Deletes what the store keeps of locks that nobody has used for long: rows and files with tokens.
    Purge(PurgeArgs),
    /// Measures lock stores and compares them: runs the program `lockkit-bench`.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Bench {
        /// The arguments of `lockkit-bench`; `--help` shows them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Prints completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Prints a manual page.
    Man {
        /// The command it is about; without it, lockkit as a whole.
        command: Option<String>,
    },
}

const RUN_HELP: &str = "\
CMD leads a process group of its own and finds LOCKKIT_NAME and LOCKKIT_TOKEN in its environment. \
The token grows with every change of holder: send it along with every write, and refuse smaller ones. \
CMD finds LOCKKIT_URL empty if there is a password in it; --keep-url passes it on.

Signals to `lockkit run` are passed on to the group, and those that end programs to everything that \
descends from CMD (on Linux). The group gets the terminal.

When CMD ends, what it left running in its group gets SIGTERM, and SIGKILL after --kill-after, \
before the lock is released; --leave lets it go on without the lock. A daemon, which has a group or \
session of its own, goes on without the lock, unless a signal ended CMD.

When the lock is lost, everything that descends from CMD gets SIGTERM, then SIGKILL, and the exit code \
is 76. This begins --kill-after, but at most a third of the lease, before the lease ends, so that nothing \
runs beyond it. Only `lockkit break` gives no warning: CMD may run beside the next holder until the next \
renewal, in a third of the lease, and then for --kill-after. When `lockkit run` is killed, even by \
SIGKILL, CMD and its descendants are killed with it; when it is stopped for too long, they are ended; a \
job that Ctrl-Z stopped as a whole is ended when it is continued too late.

Never two at once is not once: if the clock of a second host is late by some seconds and the job takes \
less, it finds the lock free and runs the job again. --at-least 50s keeps the lock for so long.";

/// `lockkit run`.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// Gives up with exit code 75 after this time, as in `10s` or `500ms`; without it, waits for ever.
    ///
    /// A store that cannot be reached is tried again for as long; without --wait, for the `outage`
    /// of the URL, 30s.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Gives up with exit code 75 at once if the lock is held.
    #[arg(long, short = 'n')]
    pub(crate) no_wait: bool,
    /// The lease: how soon others get the lock when this machine dies or is cut off.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Keeps the lock for at least this time, also when CMD ends sooner.
    ///
    /// For jobs that several hosts start at the same time of day, and whose clocks differ. Where the
    /// store ends holds by a lease, `lockkit run` ends with CMD and leaves the rest to the lease; else, and
    /// for a rest shorter than the lease, it stays until then. A signal ends the stay.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) at_least: Option<Duration>,
    /// The time from SIGTERM to SIGKILL when the lock is lost, at most a third of the lease, and for what
    /// CMD left behind.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// The exit code instead of 75, as that of flock(1).
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Passes `LOCKKIT_URL` on to CMD although there is a password in it.
    #[arg(long)]
    pub(crate) keep_url: bool,
    /// Leaves alone what CMD leaves running in its process group: it goes on without the lock.
    #[arg(long)]
    pub(crate) leave: bool,
    /// Says whom it waits for, and which token of which store it got, also where nobody is at the terminal.
    #[arg(long, short = 'v', conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Says nothing while it waits and nothing when it gives up.
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// The lock: any text of 1 to 512 bytes, except that it must not begin with `-` here.
    #[arg(value_parser = name_parser())]
    pub(crate) name: LockName,
    /// The program and its arguments, after `--`.
    #[arg(value_name = "CMD", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// `lockkit status`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if somebody holds it, 1 if nobody does, 69 if the store does not answer."
)]
pub(crate) struct StatusArgs {
    /// The lock.
    #[arg(value_parser = name_parser())]
    pub(crate) name: LockName,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// `lockkit list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only names that begin with it.
    #[arg(default_value = "", hide_default_value = true, value_parser = prefix_parser())]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// `lockkit watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Only names that begin with it.
    #[arg(default_value = "", hide_default_value = true, value_parser = prefix_parser())]
    pub(crate) prefix: String,
    /// How often to look, every 100ms at most. A hold that is shorter may not be seen.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, default_value = "1s")]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// `lockkit break`.
#[derive(Debug, Args)]
#[command(
    after_help = "The next one in the queue gets the lock at once, while the program of the broken hold may run on until \
its holder notices: at the next renewal, in a third of the lease, 10s by default, and then for its --kill-after.\n\n\
Exit codes: 0 if a hold was ended, 1 if there was none, 64 if --yes is missing."
)]
pub(crate) struct BreakArgs {
    /// The lock.
    #[arg(value_parser = name_parser())]
    pub(crate) name: LockName,
    /// Does it. Without it, only shows what would be broken, or asks if a terminal is there.
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// `lockkit schema`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0, or 64 if the URL is not that of an SQL store. Its comments name the grants that an application needs."
)]
pub(crate) struct SchemaArgs {
    /// The store, as in `postgres://db/?table=app.locks`; without it that of --url or `LOCKKIT_URL`.
    #[arg(value_name = "URL")]
    pub(crate) store: Option<String>,
}

/// `lockkit purge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Tokens go on growing: the next one of a name is at least the store's clock in microseconds. \
Redis forgets unused tokens by itself; etcd and ZooKeeper keep none. Not for a directory whose files flock(1) locks too.\n\n\
Exit codes: 0, 64 if the store keeps nothing that could be purged, 69 if it does not answer."
)]
pub(crate) struct PurgeArgs {
    /// The store; without it that of --url or `LOCKKIT_URL`.
    #[arg(value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Only what was not used for this time, as in `7d`; in a database longer than any lease.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) older_than: Duration,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// How to print.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Form {
    /// Prints JSON; its fields are described in the README.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads a time as the URLs of stores have it.
fn time(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("a time must not be negative".to_owned());
    }
    parse_duration(text).map_err(|error| error.to_string())
}

fn name_parser() -> impl TypedValueParser<Value = LockName> {
    OsStringValueParser::new().try_map(|text| {
        let text = utf8(text)?;
        LockName::new(text).map_err(|error| error.to_string())
    })
}

fn prefix_parser() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(utf8)
}

fn utf8(text: OsString) -> Result<String, String> {
    text.into_string()
        .map_err(|_| "a lock name must be UTF-8 text, and this is not".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
