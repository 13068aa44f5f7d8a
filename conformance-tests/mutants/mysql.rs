//! The mutants of the statements of MySQL: what to write in place of what.

pub(super) const CHANGES: &[(&str, &str, &str)] = &[
    (
        "mysql::ReleaseWithoutOwnerCheck",
        "WHERE name = {name} AND holder = {holder}\n    LIMIT 1 FOR UPDATE SKIP LOCKED\n) AS mine",
        "WHERE name = {name}\n    LIMIT 1 FOR UPDATE SKIP LOCKED\n) AS mine",
    ),
    (
        "mysql::RenewalRecreates",
        " AND holder IN ({holders}) AND expires_at > @lockkit_now",
        "",
    ),
    (
        "mysql::RenewalRecreates",
        "SET l.expires_at = GREATEST(l.expires_at, @lockkit_now + {ttl})",
        "SET l.holder = {holders}, l.expires_at = @lockkit_now + {ttl}",
    ),
    (
        "mysql::RenewalShortens",
        "GREATEST(l.expires_at, @lockkit_now + {ttl})",
        "@lockkit_now + {ttl}",
    ),
    (
        "mysql::RenewalWaits",
        "LIMIT {count} FOR UPDATE SKIP LOCKED",
        "LIMIT {count} FOR UPDATE",
    ),
    // As long as the default of a server allows.
    (
        "mysql::RenewalWaits",
        "SET @lockkit_now = {now};",
        "SET innodb_lock_wait_timeout = 50;\nSET @lockkit_now = {now};",
    ),
    (
        "mysql::BareCounter",
        "LAST_INSERT_ID({now}), {now} + {ttl}",
        "LAST_INSERT_ID(1), {now} + {ttl}",
    ),
    (
        "mysql::TokenOfLastHolderRepeated",
        "GREATEST(l.token + 1, {now})",
        "l.token",
    ),
    (
        "mysql::TokenRaisedOnRepeat",
        "> {now}, l.token, GREATEST",
        "> {now}, l.token + 1, GREATEST",
    ),
    ("mysql::LeaseNeverEnds", " OR expires_at <= {now})", ")"),
];
