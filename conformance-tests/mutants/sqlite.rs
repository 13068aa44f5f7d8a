//! The mutants of the statements of SQLite: what to write in place of what.

pub(super) const CHANGES: &[(&str, &str, &str)] = &[
    (
        "sqlite::ReleaseWithoutOwnerCheck",
        "WHERE l.name = {name} AND l.holder = {holder} AND l.expires_at >= {now};",
        "WHERE l.name = {name} AND {holder} <> '';",
    ),
    (
        "sqlite::RenewalRecreates",
        "SET expires_at = max(l.expires_at, {now} + {ttl})",
        "SET expires_at = {now} + {ttl}, holder = {holders}",
    ),
    (
        "sqlite::RenewalRecreates",
        " AND l.holder IN ({holders}) AND l.expires_at > {now}",
        "",
    ),
    (
        "sqlite::RenewalShortens",
        "max(l.expires_at, {now} + {ttl})",
        "{now} + {ttl}",
    ),
    (
        "sqlite::BareCounter",
        "VALUES ({name}, {holder}, {now}, {now} + {ttl})",
        "VALUES ({name}, {holder}, 1, {now} + {ttl})",
    ),
    (
        "sqlite::TokenOfLastHolderRepeated",
        "ELSE max(l.token + 1, {now}) END",
        "ELSE l.token END",
    ),
    (
        "sqlite::TokenRaisedOnRepeat",
        "THEN l.token\n",
        "THEN l.token + 1\n",
    ),
    (
        "sqlite::LeaseNeverEnds",
        "WHERE l.holder IS NULL OR l.holder = {holder} OR l.expires_at <= {now}",
        "WHERE l.holder IS NULL OR l.holder = {holder}",
    ),
];
