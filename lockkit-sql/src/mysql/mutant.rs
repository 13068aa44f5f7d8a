//! What to write in place of what, to break a promise.

use crate::SqlMutant;

pub(super) fn broken(mutant: SqlMutant, file: &str) -> String {
    let (from, to) = match mutant {
        SqlMutant::ReleaseWithoutOwnerCheck => (
            "WHERE name = {name} AND holder = {holder}\n    LIMIT 1 FOR UPDATE SKIP LOCKED\n) AS mine",
            "WHERE name = {name}\n    LIMIT 1 FOR UPDATE SKIP LOCKED\n) AS mine",
        ),
        SqlMutant::RenewalRecreates => {
            let one = " AND holder = {holder} AND expires_at > {now}\n    LIMIT 1";
            let file = file.replace(one, "\n    LIMIT 1");
            let set = "SET l.expires_at = GREATEST(";
            let file = file.replace(set, "SET l.holder = {holder}, l.expires_at = GREATEST(");
            return file.replace(" AND expires_at > @lockkit_now", "");
        }
        SqlMutant::RenewalShortens => (
            "SET l.expires_at = GREATEST(l.expires_at, {now} + {ttl})",
            "SET l.expires_at = {now} + {ttl}",
        ),
        SqlMutant::RenewalWaits => {
            let mut file = file.to_owned();
            for one in [
                "expires_at > {now}\n    LIMIT 1 FOR UPDATE",
                "LIMIT {count} FOR UPDATE",
            ] {
                let skip = format!("{one} SKIP LOCKED");
                if file.contains(&skip) {
                    // As long as a server lets it that was not told otherwise.
                    file = file.replace(&skip, one);
                    file.insert_str(0, "SET innodb_lock_wait_timeout = 50;\n");
                }
            }
            return file;
        }
        SqlMutant::BareCounter => (
            "LAST_INSERT_ID({now}), {now} + {ttl}",
            "LAST_INSERT_ID(1), {now} + {ttl}",
        ),
        SqlMutant::TokenOfLastHolderRepeated => ("GREATEST(l.token + 1, {now})", "l.token"),
        SqlMutant::TokenRaisedOnRepeat => (
            "> {now}, l.token, GREATEST",
            "> {now}, l.token + 1, GREATEST",
        ),
        SqlMutant::LeaseNeverEnds => (" OR expires_at <= {now} OR pinned <> 0)", ")"),
        SqlMutant::PrefixIsPattern | SqlMutant::TokenRaisedInsidePin | SqlMutant::WakeUpLost => {
            return file.to_owned();
        }
    };
    file.replace(from, to)
}
