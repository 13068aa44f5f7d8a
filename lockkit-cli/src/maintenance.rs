//! `lockkit schema` and `purge`: what operators do once, or once a week.

use std::time::Duration;

use lockkit::LockClient;
use lockkit::file::FileStore;
use lockkit::url::StoreUrl;

use crate::args::{PurgeArgs, SchemaArgs, StoreArgs};
use crate::exit::{Code, Failure};
use crate::output::print;
use crate::store::{Location, failure, look, runtime};

/// `lockkit schema`.
pub(crate) fn schema(args: &SchemaArgs, store: &StoreArgs) -> Result<Code, Failure> {
    let store = named(args.store.as_ref(), store);
    let Location::Url(url) = Location::of(&store)? else {
        let text = "name the store: `lockkit schema postgres://db/`";
        return Err(Failure::new(Code::Usage, text));
    };
    let url: StoreUrl = url.parse().map_err(|error| invalid(&error))?;
    print(&ddl(&url)?)?;
    Ok(Code::Own(0))
}

/// `lockkit purge`.
pub(crate) fn purge(args: &PurgeArgs, store: &StoreArgs) -> Result<Code, Failure> {
    let store = named(args.store.as_ref(), store);
    let rows = runtime()?.block_on(async {
        let (client, _) = look(&store).await?;
        purged(&client, args.older_than).await
    })?;
    print(&if args.form.json {
        format!("{{\"purged\":{rows}}}\n")
    } else {
        format!("{rows} deleted\n")
    })?;
    Ok(Code::Own(0))
}

fn named(url: Option<&String>, store: &StoreArgs) -> StoreArgs {
    StoreArgs {
        url: url.or(store.url.as_ref()).cloned(),
    }
}

fn invalid(error: &lockkit::url::InvalidUrl) -> Failure {
    Failure::from_error(Code::Usage, error)
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn ddl(url: &StoreUrl) -> Result<String, Failure> {
    lockkit::sql::ddl(url).map_err(|error| invalid(&error))
}

#[cfg(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
fn ddl(_url: &StoreUrl) -> Result<String, Failure> {
    let text = "this build has no SQL store";
    Err(Failure::new(Code::Usage, text))
}

async fn purged(client: &LockClient, older_than: Duration) -> Result<u64, Failure> {
    // A file that is locked stays, however old it is.
    if let Some(store) = client.store::<FileStore>() {
        let purged = store.purge(older_than).await;
        return purged.map_err(|error| failure(&lockkit::Error::Backend(error)));
    }
    // A holder without a renewal for longer than this has lost the lock anyway.
    let longest = client.backend().capabilities().max_ttl;
    if older_than < longest {
        let text = format!("--older-than must be at least {longest:?}, the longest lease");
        return Err(Failure::new(Code::Usage, text));
    }
    let answer = purge_rows(client, older_than).await;
    let name = client.backend().backend();
    let nothing = || {
        Failure::new(
            Code::Usage,
            format!("a {name} store keeps nothing to purge"),
        )
    };
    answer.ok_or_else(nothing)?
}

/// `None` where the store has no rows.
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres", feature = "sqlite")),
    expect(clippy::unused_async, reason = "no store of this build has rows")
)]
async fn purge_rows(client: &LockClient, older_than: Duration) -> Option<Result<u64, Failure>> {
    let read = |answer: Result<u64, lockkit::BackendError>| {
        answer.map_err(|error| failure(&lockkit::Error::Backend(error)))
    };
    #[cfg(feature = "postgres")]
    if let Some(store) = client.store::<lockkit::sql::PostgresStore>() {
        return Some(read(store.purge(older_than).await));
    }
    #[cfg(feature = "mysql")]
    if let Some(store) = client.store::<lockkit::sql::MysqlStore>() {
        return Some(read(store.purge(older_than).await));
    }
    #[cfg(feature = "sqlite")]
    if let Some(store) = client.store::<lockkit::sql::SqliteStore>() {
        return Some(read(store.purge(older_than).await));
    }
    let _ = (client, older_than, read);
    None
}
