//! What to write in place of what, to break a promise.

use crate::SqlMutant;

pub(super) fn broken(mutant: SqlMutant, file: &str) -> String {
    let (from, to) = match mutant {
        SqlMutant::ReleaseWithoutOwnerCheck => (
            "WHERE name = {name} AND holder = {holder}\n    LIMIT 1 FOR UPDATE SKIP LOCKED\n) AS mine",
            "WHERE name = {name}\n    LIMIT 1 FOR UPDATE SKIP LOCKED\n) AS mine",
        ),
        SqlMutant::RenewalRecreates => {
            let set = "SET l.expires_at = GREATEST(l.expires_at, @lockkit_now + {ttl})";
            let broken = "SET l.holder = {holders}, l.expires_at = @lockkit_now + {ttl}";
            let file = file.replace(
                " AND holder IN ({holders}) AND expires_at > @lockkit_now",
                "",
            );
            return file.replace(set, broken);
        }
        SqlMutant::RenewalShortens => (
            "GREATEST(l.expires_at, @lockkit_now + {ttl})",
            "@lockkit_now + {ttl}",
        ),
        SqlMutant::RenewalWaits => {
            let one = "LIMIT {count} FOR UPDATE";
            let skip = format!("{one} SKIP LOCKED");
            let mut waits = file.replace(&skip, one);
            if waits != file {
                // As long as the default of a server allows.
                waits.insert_str(0, "SET innodb_lock_wait_timeout = 50;\n");
            }
            return waits;
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
        SqlMutant::LeaseNeverEnds => (" OR expires_at <= {now})", ")"),
        SqlMutant::PrefixIsPattern | SqlMutant::WakeUpLost => {
            return file.to_owned();
        }
    };
    file.replace(from, to)
}
