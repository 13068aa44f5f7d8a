//! The command's own tests, all of them, on the stores in databases: the same exit codes, words and
//! signals as on its embedded store.

use std::process::ExitCode;

use conformance_tests::TestSuite;
use conformance_tests::servers::{MysqlPrograms, PostgresPrograms, ZkServer};

fn main() -> ExitCode {
    // One after the other: each of them is as many processes at once as a machine bears.
    TestSuite::main(1, tests)
}

fn tests() -> TestSuite {
    let sqlite = TestSuite::new("command-on-sqlite", None).test(databases::sqlite);
    let postgres = PostgresPrograms::system().missing();
    let postgres = TestSuite::new("command-on-postgres", postgres).test(databases::postgres);
    let mariadb = MysqlPrograms::mariadb().missing();
    let mariadb = TestSuite::new("command-on-mariadb", mariadb).test(databases::mariadb);
    let zk = TestSuite::new("command-on-zookeeper", ZkServer::missing()).test(databases::zookeeper);
    sqlite.and(postgres).and(mariadb).and(zk)
}

mod databases {
    use std::process::Command;

    use conformance_tests::servers::{
        MysqlPrograms, MysqlServer, PostgresPrograms, PostgresServer, ZkCommand, ZkServer,
    };
    use conformance_tests::{Failure, Outcome};

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
        // Beside `deps`, where this program is.
        let own = std::env::current_exe()?;
        let lockkit = own.ancestors().nth(2).map(|built| built.join("lockkit"));
        let lockkit =
            lockkit.ok_or_else(|| Failure::new("the command is not where it is built"))?;
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
            .env("LOCKKIT_COMMAND_STORE", store)
            .env_remove("LOCKKIT_URL")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .output()?;
        if tests.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&tests.stdout);
        let failure = Failure::new(format!("the command's tests fail on {store}"));
        Err(failure.with_detail(&said))
    }
}
