//! The mutants of the statements of PostgreSQL: what to write in place of what.

pub(super) const CHANGES: &[(&str, &str, &str)] = &[
    (
        "postgres::ReleaseWithoutOwnerCheck",
        "WHERE m.name = {name} AND m.holder = {holder}",
        "WHERE m.name = {name} AND {holder} <> ''",
    ),
    (
        "postgres::RenewalRecreates",
        " AND l.holder IN ({holders}) AND l.expires_at > {now}\n",
        "\n",
    ),
    (
        "postgres::RenewalRecreates",
        "SET expires_at = greatest(l.expires_at, {now} + {ttl})",
        "SET holder = {holders}, expires_at = {now} + {ttl}",
    ),
    (
        "postgres::RenewalRecreates",
        "SELECT l.holder, r.name",
        "SELECT {holders}, r.name",
    ),
    (
        "postgres::RenewalRecreates",
        " AND l.holder IN ({holders}) AND (r.name",
        " AND (r.name",
    ),
    (
        "postgres::RenewalShortens",
        "greatest(l.expires_at, {now} + {ttl})",
        "{now} + {ttl}",
    ),
    (
        "postgres::RenewalWaits",
        "UPDATE OF l SKIP LOCKED",
        "UPDATE OF l",
    ),
    (
        "postgres::BareCounter",
        "SELECT {name}, {holder}, {now}, {now} + {ttl}",
        "SELECT {name}, {holder}, 1, {now} + {ttl}",
    ),
    (
        "postgres::TokenOfLastHolderRepeated",
        "ELSE greatest(l.token + 1, {now}) END",
        "ELSE l.token END",
    ),
    (
        "postgres::TokenRaisedOnRepeat",
        "THEN l.token\n",
        "THEN l.token + 1\n",
    ),
    (
        "postgres::LeaseNeverEnds",
        "(f.holder IS NULL OR f.holder = {holder} OR f.expires_at <= {now})",
        "(f.holder IS NULL OR f.holder = {holder})",
    ),
    (
        "postgres::WakeUpLost",
        "pg_notify({channel}, encode({name}, 'hex'))",
        "NULL",
    ),
];
