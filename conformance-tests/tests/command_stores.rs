//! The command's own tests on the stores in databases: the same exit codes, words and signals as on its
//! embedded store. And what it leaves behind on others.

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::foreign::missing;
use conformance_tests::servers::{MysqlPrograms, PostgresPrograms, RedisServer, ZkServer};

fn main() -> ExitCode {
    // Each of them is many processes, which mostly wait.
    TestSuite::main(2, tests)
}

fn tests() -> TestSuite {
    let sqlite = TestSuite::new("command-on-sqlite", None).test(databases::sqlite);
    let postgres = PostgresPrograms::system().missing();
    let postgres = TestSuite::new("command-on-postgres", postgres).test(databases::postgres);
    let mariadb = MysqlPrograms::mariadb().missing();
    let mariadb = TestSuite::new("command-on-mariadb", mariadb).test(databases::mariadb);
    let zk = TestSuite::new("command-on-zookeeper", ZkServer::missing()).test(databases::zookeeper);
    let redis = TestSuite::new("command-on-redis", missing(RedisServer::PROGRAM))
        .test(databases::looks_at_redis_leave_nothing_behind);
    sqlite.and(postgres).and(mariadb).and(zk).and(redis)
}

mod databases {
    use std::path::PathBuf;
    use std::process::Command;

    use conformance_tests::servers::{
        MysqlPrograms, MysqlServer, PostgresPrograms, PostgresServer, RedisServer, ZkCommand,
        ZkServer,
    };
    use conformance_tests::{Failure, Outcome, ensure};

    pub(crate) async fn sqlite() -> Outcome {
        tests_of_the_command("sqlite:")
    }

    pub(crate) async fn postgres() -> Outcome {
        let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
        tests_of_the_command(&server.url("postgres"))
    }

    pub(crate) async fn mariadb() -> Outcome {
        let server = MysqlServer::start(&MysqlPrograms::mariadb(), &[]).await?;
        server.run("create database command").await?;
        let port = server.port();
        tests_of_the_command(&format!("mysql://admin@127.0.0.1:{port}/command"))
    }

    /// A session has the lease that the command asks for, and a run inside itself is refused.
    pub(crate) async fn zookeeper() -> Outcome {
        let server = ZkServer::start(&ZkCommand::system()).await?;
        let url = format!("zk://127.0.0.1:{}", server.port());
        let lockkit = lockkit()?;
        let inside = format!("{} run job -- true; echo $?", lockkit.display());
        let run = Command::new(&lockkit)
            .args(["run", "--ttl", "5s", "job", "--", "sh", "-c", &inside])
            .env("LOCKKIT_URL", &url)
            .output()?;
        if run.status.success() && run.stdout == b"64\n" {
            return Ok(());
        }
        Err(Failure::new(format!("the command on ZooKeeper: {run:?}")))
    }

    /// Also where a quarantine would be written down.
    pub(crate) async fn looks_at_redis_leave_nothing_behind() -> Outcome {
        let servers = [
            RedisServer::forgetful().await?,
            RedisServer::forgetful().await?,
            RedisServer::forgetful().await?,
        ];
        let [one, two, three] = servers.each_ref().map(RedisServer::port);
        let redlock =
            format!("redlock://127.0.0.1:{one},127.0.0.1:{two},127.0.0.1:{three}?quarantine=1s");
        let single = format!("redis://127.0.0.1:{one}?quarantine=1s&label=test");
        let keys = async || {
            let mut keys = Vec::new();
            for server in &servers {
                keys.extend(server.ask(&["KEYS", "*"]).await?);
            }
            Ok::<_, Failure>(keys)
        };
        for url in [redlock, single] {
            for look in ["status job", "list j", "break job --yes"] {
                let done = Command::new(lockkit()?)
                    .args(look.split(' '))
                    .env("LOCKKIT_URL", &url)
                    .output()?;
                let left = keys().await?;
                // 69: the store is away.
                if done.status.code().is_none_or(|code| code > 1) || !left.is_empty() {
                    return Err(Failure::new(format!("{look}: {left:?}, {done:?}")));
                }
            }
            // They see what others hold, and the look at the keys can fail.
            let inside = format!("{} status job", lockkit()?.display());
            let run = Command::new(lockkit()?)
                .args(["run", "--wait", "5s", "job", "--", "sh", "-c", &inside])
                .env("LOCKKIT_URL", &url)
                .output()?;
            let told = String::from_utf8_lossy(&run.stdout);
            if !told.contains("\nholder ") || keys().await?.is_empty() {
                return Err(Failure::new(format!("{run:?}, {:?}", keys().await?)));
            }
            for server in &servers {
                server.ask(&["FLUSHALL"]).await?;
            }
        }
        let wrong = Command::new(lockkit()?)
            .args(["status", "job"])
            .env(
                "LOCKKIT_URL",
                format!("redis://127.0.0.1:{one}?quarantine=soon"),
            )
            .output()?;
        if wrong.status.code() != Some(64) {
            return Err(Failure::new(format!("a wrong option: {wrong:?}")));
        }
        Ok(())
    }

    /// Beside `deps`, where this program is.
    fn lockkit() -> Outcome<PathBuf> {
        let own = std::env::current_exe()?;
        let lockkit = own.ancestors().nth(2).map(|built| built.join("lockkit"));
        lockkit.ok_or_else(|| Failure::new("the command is not where it is built"))
    }

    /// How many tests passed, as the last lines of the test programs say.
    fn passed(output: &str) -> u32 {
        let ends = output.lines().filter_map(|line| {
            let counts = line.strip_prefix("test result: ok. ")?;
            counts.split_once(" passed")?.0.parse::<u32>().ok()
        });
        ends.sum()
    }

    /// Tests of the command for which the store makes no difference.
    const ELSEWHERE: [&str; 3] = ["bench::", "cron::", "terminal::"];

    /// Runs the tests of the command on another store, with the cargo that built this program. The
    /// whole workspace is named, as in the one test command: it has the programs then already.
    fn tests_of_the_command(store: &str) -> Outcome {
        let mut cargo = Command::new(env!("CARGO"));
        // What cargo has set for this program: build scripts that watch it would run again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&name);
            }
        }
        let tests = cargo
            .args(["test", "--offline", "--workspace", "--all-features"])
            .args(["--test", "command"])
            .args(["--", "--test-threads", "4"])
            .args(ELSEWHERE.iter().flat_map(|module| ["--skip", module]))
            .env("LOCKKIT_COMMAND_STORE", store)
            .env_remove("LOCKKIT_URL")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .output()?;
        let said = String::from_utf8_lossy(&tests.stdout);
        if tests.status.success() {
            return ensure(passed(&said) > 0, format!("no test ran on {store}"));
        }
        let failure = Failure::new(format!("the command's tests fail on {store}"));
        Err(failure.with_detail(&said))
    }
}
