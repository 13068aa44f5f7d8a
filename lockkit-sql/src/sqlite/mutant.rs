//! What to write in place of what, to break a promise.

use crate::SqlMutant;

pub(super) fn broken(mutant: SqlMutant, file: &str) -> String {
    let (from, to) = match mutant {
        SqlMutant::ReleaseWithoutOwnerCheck => (
            "WHERE l.name = ?1 AND l.holder = ?2 AND l.expires_at >= {now};",
            "WHERE l.name = ?1 AND ?2 <> '';",
        ),
        SqlMutant::RenewalRecreates => {
            let set = "SET expires_at = max(l.expires_at, {now} + ?1)";
            let broken = "SET expires_at = {now} + ?1, holder = (SELECT value FROM json_each(?3))";
            let held = "AND l.holder IN (SELECT value FROM json_each(?3)) AND l.expires_at > {now}";
            return file.replace(set, broken).replace(held, "");
        }
        SqlMutant::RenewalShortens => ("max(l.expires_at, {now} + ?1)", "{now} + ?1"),
        SqlMutant::BareCounter => (
            "VALUES (?1, ?2, {now}, {now} + ?3)",
            "VALUES (?1, ?2, 1, {now} + ?3)",
        ),
        SqlMutant::TokenOfLastHolderRepeated => {
            ("ELSE max(l.token + 1, {now}) END", "ELSE l.token END")
        }
        SqlMutant::TokenRaisedOnRepeat => ("THEN l.token\n", "THEN l.token + 1\n"),
        SqlMutant::LeaseNeverEnds => (
            "WHERE l.holder IS NULL OR l.holder = ?2 OR l.expires_at <= {now}",
            "WHERE l.holder IS NULL OR l.holder = ?2",
        ),
        SqlMutant::PrefixIsPattern => (
            "substr(l.name, 1, length(?2)) = ?2",
            "CAST(l.name AS TEXT) LIKE CAST(?2 AS TEXT) || '%'",
        ),
        // A row of a file is never locked by itself.
        SqlMutant::WakeUpLost | SqlMutant::RenewalWaits => {
            return file.to_owned();
        }
    };
    file.replace(from, to)
}
