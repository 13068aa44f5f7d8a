//! The mutants of the statements of SQLite: what to write in place of what.

pub(super) const CHANGES: &[(&str, &str, &str)] = &[
    (
        "sqlite::ReleaseWithoutOwnerCheck",
        "WHERE l.name = ?1 AND l.holder = ?2 AND l.expires_at >= {now};",
        "WHERE l.name = ?1 AND ?2 <> '';",
    ),
    (
        "sqlite::RenewalRecreates",
        "SET expires_at = max(l.expires_at, {now} + ?1)",
        "SET expires_at = {now} + ?1, holder = (SELECT value FROM json_each(?3))",
    ),
    (
        "sqlite::RenewalRecreates",
        "AND l.holder IN (SELECT value FROM json_each(?3)) AND l.expires_at > {now}",
        "",
    ),
    (
        "sqlite::RenewalShortens",
        "max(l.expires_at, {now} + ?1)",
        "{now} + ?1",
    ),
    (
        "sqlite::BareCounter",
        "VALUES (?1, ?2, {now}, {now} + ?3)",
        "VALUES (?1, ?2, 1, {now} + ?3)",
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
        "WHERE l.holder IS NULL OR l.holder = ?2 OR l.expires_at <= {now}",
        "WHERE l.holder IS NULL OR l.holder = ?2",
    ),
    (
        "sqlite::PrefixIsPattern",
        "substr(l.name, 1, length(?2)) = ?2",
        "CAST(l.name AS TEXT) LIKE CAST(?2 AS TEXT) || '%'",
    ),
];
