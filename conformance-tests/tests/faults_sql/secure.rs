//! TLS with certificates that the tests make.

use std::error::Error as _;

use conformance_tests::servers::{
    Certificates, MysqlPrograms, MysqlServer, PostgresPrograms, PostgresServer,
};
use conformance_tests::task::{spawn, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::{Error, LockClient, Outcome as Effect};

use crate::world::SOON;

/// A server that refuses connections without TLS, and the user `proven` without a certificate.
pub(crate) trait Secure: Sized + Send + Sync + 'static {
    fn missing() -> Option<String>;
    async fn start(certificates: &Certificates) -> Outcome<Self>;
    fn url(&self, user: &str, options: &str) -> String;

    /// A refused client gets the error at once.
    async fn open(&self, user: &str, options: &str) -> Outcome<lockkit_core::Result<LockClient>> {
        within(SOON, lockkit::connect(self.url(user, options))).await
    }

    /// Opens a store that cannot be had, and not later either.
    async fn refused(&self, user: &str, options: &str) -> Outcome<String> {
        match self.open(user, options).await? {
            Ok(_) => Err(Failure::new(format!("`{user}` with `{options}` is let in"))),
            Err(Error::Backend(error)) => {
                let said = error.source().map(ToString::to_string).unwrap_or_default();
                let for_ever = error.outcome() == Effect::Rejected;
                ensure(for_ever, format!("`{options}` is tried again: {error:?}"))?;
                Ok(said)
            }
            Err(error) => Err(error.into()),
        }
    }
}

pub(crate) struct SecurePostgres(PostgresServer);

impl Secure for SecurePostgres {
    fn missing() -> Option<String> {
        PostgresPrograms::system().missing()
    }

    async fn start(certificates: &Certificates) -> Outcome<Self> {
        let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
        // The server writes them itself: it accepts no key that others may read.
        for file in ["ca.crt", "server.crt", "server.key"] {
            let text = std::fs::read_to_string(certificates.path(file))?;
            write(&server, file, text.trim_end()).await?;
        }
        let rules = "local all all trust\nhost all postgres all trust\n\
                     hostssl all app all trust\nhostssl all proven all trust clientcert=verify-ca\n\
                     host all all all reject";
        write(&server, "pg_hba.conf", rules).await?;
        for sql in [
            "create role app login; create role proven login; \
             grant create on schema public to app, proven",
            "alter system set ssl_ca_file = 'ca.crt'",
            "alter system set ssl = on",
            "select pg_reload_conf()",
        ] {
            server.run(sql).await?;
        }
        until("the server speaks TLS", async || {
            Ok(server.ask("show ssl").await? == ["on"])
        })
        .await?;
        Ok(Self(server))
    }

    fn url(&self, user: &str, options: &str) -> String {
        let port = self.0.port();
        format!("postgres://{user}@localhost:{port}/postgres?{options}")
    }
}

async fn write(server: &PostgresServer, file: &str, text: &str) -> Outcome {
    let sql = format!(
        "copy (select unnest(string_to_array('{text}', chr(10)))) to program 'umask 077; cat > {file}'"
    );
    Ok(server.run(&sql).await?)
}

pub(crate) struct SecureMaria(MysqlServer);

impl Secure for SecureMaria {
    fn missing() -> Option<String> {
        MysqlPrograms::mariadb().missing()
    }

    async fn start(certificates: &Certificates) -> Outcome<Self> {
        let option =
            |option: &str, file| format!("--ssl-{option}={}", certificates.path(file).display());
        let settings = [
            option("ca", "ca.crt"),
            option("cert", "server.crt"),
            option("key", "server.key"),
        ];
        let settings = settings.each_ref().map(String::as_str);
        let server = MysqlServer::start(&MysqlPrograms::mariadb(), &settings).await?;
        let sql = "create database app; create user app@'127.0.0.1' require ssl; \
                   create user proven@'127.0.0.1' require x509; \
                   grant all on app.* to app@'127.0.0.1'; grant all on app.* to proven@'127.0.0.1'";
        server.run(sql).await?;
        Ok(Self(server))
    }

    fn url(&self, user: &str, options: &str) -> String {
        let port = self.0.port();
        format!("mysql://{user}@localhost:{port}/app?{options}")
    }
}

pub(crate) fn trials<S: Secure>(name: &'static str) -> TestSuite {
    TestSuite::new(name, S::missing())
        .test(tls_needs_a_server_that_is_trusted::<S>)
        .test(a_server_may_ask_for_the_client_s_certificate::<S>)
}

async fn tls_needs_a_server_that_is_trusted<S: Secure>() -> Outcome {
    let certificates = Certificates::make()?;
    let server = S::start(&certificates).await?;
    let path = |file: &str| certificates.path(file).display().to_string();
    let trusted = format!("ca={}", path("ca.crt"));
    let holder = server.open("app", &trusted).await??;
    let guard = holder.lock("jobs")?.acquire().await?;
    // A client that asks for TLS and no more connects, too.
    let other = server.open("app", "sslmode=require").await??;
    let waiting = other.lock("jobs")?;
    ensure(waiting.try_acquire().await?.is_none(), "two hold")?;
    let waiter = spawn(async move { Outcome::Ok(waiting.acquire().await?.release().await?) });
    guard.check()?;
    guard.release().await?;
    waiter.soon().await??;

    let said = server
        .refused("app", &format!("ca={}", path("other.crt")))
        .await?;
    ensure(said.contains("certificate"), said)?;
    let said = server.refused("app", "sslmode=verify-full").await?;
    ensure(said.contains("certificate"), said)?;
    let said = server.refused("app", "ca=/nowhere/ca.crt").await?;
    ensure(said.contains("TLS"), said)?;
    server.refused("app", "sslmode=disable").await?;
    Ok(())
}

async fn a_server_may_ask_for_the_client_s_certificate<S: Secure>() -> Outcome {
    let certificates = Certificates::make()?;
    let server = S::start(&certificates).await?;
    let path = |file: &str| certificates.path(file).display().to_string();
    let with = |who: &str| {
        let (cert, key) = (path(&format!("{who}.crt")), path(&format!("{who}.key")));
        format!("ca={}&cert={cert}&key={key}", path("ca.crt"))
    };
    let client = server.open("proven", &with("client")).await??;
    client.lock("jobs")?.acquire().await?.release().await?;
    server.refused("proven", &with("stranger")).await?;
    server
        .refused("proven", &format!("ca={}", path("ca.crt")))
        .await?;
    Ok(())
}
