//! What to write in place of what, to break a promise.

use crate::SqlMutant;

pub(super) fn broken(mutant: SqlMutant, file: &str) -> String {
    let (from, to) = match mutant {
        SqlMutant::ReleaseWithoutOwnerCheck => (
            "WHERE m.name = {name} AND m.holder = {holder}",
            "WHERE m.name = {name} AND {holder} <> ''",
        ),
        SqlMutant::RenewalRecreates => (
            "WHERE l.holder = w.holder AND l.expires_at > {now}",
            "WHERE w.holder <> ''",
        ),
        SqlMutant::RenewalShortens => ("greatest(l.expires_at, {now} + m.ttl)", "{now} + m.ttl"),
        SqlMutant::RenewalWaits => ("UPDATE OF l SKIP LOCKED", "UPDATE OF l"),
        SqlMutant::BareCounter => (
            "SELECT {name}, {holder}, {now}, {now} + {ttl}",
            "SELECT {name}, {holder}, 1, {now} + {ttl}",
        ),
        SqlMutant::TokenOfLastHolderRepeated => {
            ("ELSE greatest(l.token + 1, {now}) END", "ELSE l.token END")
        }
        SqlMutant::TokenRaisedOnRepeat => ("THEN l.token\n", "THEN l.token + 1\n"),
        SqlMutant::LeaseNeverEnds => (
            "(f.holder IS NULL OR f.holder = {holder} OR f.expires_at <= {now})",
            "(f.holder IS NULL OR f.holder = {holder})",
        ),
        SqlMutant::PrefixIsPattern => return file.to_owned(),
        SqlMutant::WakeUpLost => ("pg_notify({channel}, encode({name}, 'hex'))", "NULL"),
    };
    file.replace(from, to)
}
