//! `lockkit schema` and `purge`: what operators do once, or once a week.

use std::time::Duration;

use lockkit::file::FileStore;
use lockkit::url::{StoreUrl, format_duration};
use lockkit::{BackendError, Error, LockClient};

use crate::args::{PurgeArgs, SchemaArgs};
use crate::exit::{Code, Failure};
use crate::output::print;
use crate::store::{Location, look};

pub(crate) fn schema(args: &SchemaArgs, url: Option<&str>) -> Result<Code, Failure> {
    let location = Location::of(args.store.as_deref().or(url))?;
    if location.embedded {
        return Err(Failure::usage(
            "no SQL store is given; name one, as in `lockkit schema postgres://db/`",
        ));
    }
    print(&ddl(&location.url)?)?;
    Ok(Code::OK)
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn ddl(url: &StoreUrl) -> Result<String, Failure> {
    lockkit::sql::ddl(url).map_err(|error| Error::from(error).into())
}

#[cfg(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
fn ddl(_url: &StoreUrl) -> Result<String, Failure> {
    Err(Failure::usage(
        "this build has no SQL store; build it with the feature of one",
    ))
}

pub(crate) async fn purge(args: &PurgeArgs, url: Option<&str>) -> Result<Code, Failure> {
    let (client, _) = look(args.store.as_deref().or(url), args.form.json).await?;
    let longest = client.backend().capabilities().max_ttl;
    let purged = match client.store::<FileStore>() {
        // A file that is locked stays, however old it is.
        Some(store) => store.purge(args.older_than).await.map(Some),
        // A holder without a renewal for longer than this has lost the lock anyway.
        None if args.older_than < longest && longest < Duration::MAX => {
            let longest = format_duration(longest);
            let text =
                format!("--older-than is shorter than the longest lease; give at least {longest}");
            return Err(Failure::usage(text));
        }
        None => purge_rows(&client, args.older_than).await,
    };
    let Some(purged) = purged.map_err(Error::Backend)? else {
        let store = client.backend().backend();
        let text = format!("a {store} store keeps nothing that can be purged");
        return Err(Failure::usage(text));
    };
    print(&if args.form.json {
        format!("{{\"purged\":{purged}}}\n")
    } else {
        format!("{purged} deleted\n")
    })?;
    Ok(Code::OK)
}

/// `None` where the store has no rows.
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres", feature = "sqlite")),
    expect(clippy::unused_async, reason = "no store of this build has rows")
)]
async fn purge_rows(
    client: &LockClient,
    older_than: Duration,
) -> Result<Option<u64>, BackendError> {
    #[cfg(feature = "postgres")]
    if let Some(store) = client.store::<lockkit::sql::PostgresStore>() {
        return store.purge(older_than).await.map(Some);
    }
    #[cfg(feature = "mysql")]
    if let Some(store) = client.store::<lockkit::sql::MysqlStore>() {
        return store.purge(older_than).await.map(Some);
    }
    #[cfg(feature = "sqlite")]
    if let Some(store) = client.store::<lockkit::sql::SqliteStore>() {
        return store.purge(older_than).await.map(Some);
    }
    let _ = (client, older_than);
    Ok(None)
}
