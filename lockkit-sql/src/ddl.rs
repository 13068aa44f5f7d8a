//! The definition of the table, for users who make it themselves.

use lockkit_core::url::{InvalidUrl, StoreUrl};

use crate::url::{SCHEMES, table};

/// The statements that make the table of the store that a URL names, for users who make tables
/// themselves. Nothing is connected to.
///
/// # Errors
/// - [`InvalidUrl`] if the URL is not that of an SQL store of this build.
///
/// # Examples
/// ```
/// # #[cfg(feature = "postgres")] {
/// let ddl = lockkit_sql::ddl(&"postgres://db/?table=app.locks".parse()?)?;
/// assert!(ddl.contains("CREATE TABLE"));
/// # }
/// # Ok::<(), lockkit_core::url::InvalidUrl>(())
/// ```
pub fn ddl(url: &StoreUrl) -> Result<String, InvalidUrl> {
    let mut store = url.clone();
    let table = table(&mut store)?;
    match url.scheme() {
        #[cfg(feature = "mysql")]
        "mysql" => Ok(crate::mysql::ddl(&table)),
        #[cfg(feature = "postgres")]
        "postgres" => Ok(crate::postgres::ddl(&table)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(crate::sqlite::ddl(&table)),
        other => Err(InvalidUrl::unknown_scheme(other, SCHEMES)),
    }
}
