//! URLs as hosting providers and other clients print them: which store each leads to, and what is
//! understood of it.

#![cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "tls"
))]

use lockkit::redis::RedisStoreBuilder;
use lockkit::sql::{Mysql, Postgres, SqlStoreBuilder};
use lockkit::url::{InvalidUrl, StoreUrl};
use lockkit_core::ClientSettings;

/// A URL, the scheme that serves it, and parts of what its builder shows.
#[rustfmt::skip]
const URLS: &[(&str, &str, &[&str])] = &[
    ("postgres://u:hunter2@ec2-1-2-3-4.compute-1.amazonaws.com:5432/d1", "postgres", &["amazonaws.com:5432/d1 Prefer"]),
    ("postgresql://u:hunter2@ep-x-pooler.eu-central-1.aws.neon.tech/db?sslmode=require&channel_binding=require", "postgres", &["neon.tech:5432/db VerifyFull"]),
    ("postgresql://postgres.ref:hunter2@aws-0-eu-central-1.pooler.supabase.com:6543/postgres?wake=poll", "postgres", &["supabase.com:6543/postgres", "wake: Poll"]),
    ("postgresql://doadmin:hunter2@db-1.b.db.ondigitalocean.com:25060/defaultdb?sslmode=require", "postgres", &["25060/defaultdb Require"]),
    ("postgres://avnadmin:hunter2@pg-1.aivencloud.com:13039/defaultdb?sslmode=verify-ca&sslrootcert=/ca.pem", "postgres", &["13039/defaultdb VerifyCa"]),
    ("postgresql://u:hunter2@db.rds.amazonaws.com/app?sslmode=verify-full&sslrootcert=/certs/global-bundle.pem", "postgres", &["app VerifyFull"]),
    ("postgres://u%40srv:hunter2@srv.postgres.database.azure.com:5432/app?sslmode=require&connect_timeout=10", "postgres", &["app Require", "connect_timeout: 10s"]),
    ("postgres://u:hunter2@/app?host=/cloudsql/project:region:instance", "postgres", &["/cloudsql/project:region:instance:5432/app"]),
    ("postgres://%2Fvar%2Frun%2Fpostgresql/app", "postgres", &["/var/run/postgresql:5432/app"]),
    ("postgresql://u@db/app?sslcert=/me.crt&sslkey=/me.key&sslrootcert=system", "postgres", &["db:5432/app VerifyFull"]),
    ("postgresql://u@db/app?options=-c%20search_path%3Dlocks&application_name=web", "postgres", &["db:5432/app Prefer"]),
    ("mysql://avnadmin:hunter2@mysql-1.aivencloud.com:13039/defaultdb?ssl-mode=REQUIRED", "mysql", &["13039/defaultdb Required"]),
    ("mysql://doadmin:hunter2@db-1.b.db.ondigitalocean.com:25060/defaultdb?ssl-mode=VERIFY_CA&ssl-ca=/ca.pem", "mysql", &["25060/defaultdb VerifyCa"]),
    ("mysql://u:hunter2@localhost/app?unix_socket=/cloudsql/project:region:instance", "mysql", &["/cloudsql/project:region:instance/app"]),
    ("mariadb://u:hunter2@maria.railway.internal:3306/railway", "mysql", &["maria.railway.internal:3306/railway Preferred"]),
    ("rediss://:hunter2@ec2-1-2-3-4.compute-1.amazonaws.com:7770", "rediss", &["port: 7770", "tls: true"]),
    ("rediss://default:hunter2@eu1-x.upstash.io:6379", "rediss", &["eu1-x.upstash.io", "tls: true"]),
    ("redis://default:hunter2@redis.railway.internal:6379/2", "redis", &["tls: false", "database: 2"]),
    ("valkeys://default:hunter2@valkey-1.aivencloud.com:13040", "rediss", &["port: 13040", "tls: true"]),
    ("valkey://valkey:6379/0", "redis", &["\"valkey\"", "port: 6379", "tls: false"]),
    ("unix:///run/redis/redis.sock?db=1", "redis+unix", &["/run/redis/redis.sock", "database: 1"]),
];

fn understood(url: &mut StoreUrl) -> Result<String, InvalidUrl> {
    ClientSettings::default().or_from_url(&mut url.options)?;
    Ok(match url.scheme() {
        "postgres" => format!("{:?}", SqlStoreBuilder::<Postgres>::from_url(url)?),
        "mysql" => format!("{:?}", SqlStoreBuilder::<Mysql>::from_url(url)?),
        _ => format!("{:?}", RedisStoreBuilder::from_url(url)?),
    })
}

#[test]
fn urls_of_hosting_providers_open_a_store() {
    for (text, scheme, parts) in URLS {
        let mut url: StoreUrl = text.parse().expect(text);
        assert_eq!(url.scheme(), *scheme, "{text}");
        let shown = understood(&mut url).unwrap_or_else(|error| format!("{error}"));
        for part in *parts {
            assert!(shown.contains(part), "{text}: {shown}");
        }
        assert!(!shown.contains("hunter2"), "{text}: {shown}");
    }
}
