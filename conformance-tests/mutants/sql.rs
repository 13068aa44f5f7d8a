//! The mutants of the statements of databases: what to write in place of what.

pub(crate) const CHANGES: &[(&str, &str, &str)] = &[
    (
        "mysql::ReleaseWithoutOwnerCheck",
        "WHERE name = {name} AND holder = {holder}\n    LIMIT 1 FOR UPDATE SKIP LOCKED\n) AS mine",
        "WHERE name = {name}\n    LIMIT 1 FOR UPDATE SKIP LOCKED\n) AS mine",
    ),
    (
        "mysql::ReleaseInWithoutOwnerCheck",
        "AND l.holder = {holder} AND l.token = {token};",
        ";",
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
    (
        "mysql::RefusedTransactionLocks",
        "SELECT 1 FROM {table} AS l\n    WHERE l.name = {name} AND l.holder IS NOT NULL AND l.expires_at > {now};",
        "",
    ),
    ("mysql::LeaseNeverEnds", " OR expires_at <= {now})", ")"),
    (
        "mysql::DeadPinLasts",
        "IS_USED_LOCK(CONCAT('lockkit_', l.session)) IS NULL",
        "1 = 0",
    ),
    (
        "mysql::TurnHidesPlace",
        "{now} + 2 * (GREATEST(l.waiting_until, {now}) - {now})",
        "9000000000000000000",
    ),
    (
        "postgres::ReleaseWithoutOwnerCheck",
        "WHERE m.name = {name} AND m.holder = {holder}",
        "WHERE m.name = {name} AND {holder} <> ''",
    ),
    (
        "postgres::ReleaseInWithoutOwnerCheck",
        "AND m.holder = {holder} AND m.token = {token}",
        "",
    ),
    (
        "postgres::ReleaseInWithoutOwnerCheck",
        "AND l.holder = {holder} AND l.token = {token}\nFOR NO KEY UPDATE;",
        "FOR NO KEY UPDATE;",
    ),
    (
        "postgres::RenewalRecreates",
        " AND l.holder IN ({holders}) AND l.expires_at > {now}",
        "",
    ),
    (
        "postgres::RenewalRecreates",
        "SET expires_at = greatest(l.expires_at, {now} + {ttl})",
        "SET expires_at = {now} + {ttl}, holder = {holders}",
    ),
    // The query sees the rows from before the update.
    (
        "postgres::RenewalRecreates",
        "SELECT l.holder, r.name IS NOT NULL",
        "SELECT {holders}, r.name IS NOT NULL",
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
        "postgres::GrantRepeatsToken",
        "greatest(m.token + 1, {now}) AS next",
        "m.token AS next",
    ),
    (
        "postgres::TokenRaisedOnRepeat",
        "THEN l.token\n",
        "THEN l.token + 1\n",
    ),
    (
        "postgres::LeaseNeverEnds",
        "(f.holder IS NULL OR f.expires_at <= {now})",
        "f.holder IS NULL",
    ),
    ("postgres::WakeUpLost", "encode({name}, 'hex')", "'00'"),
    ("postgres::WakeUpLost", "'granted '", "'lost '"),
    (
        "sqlite::ReleaseWithoutOwnerCheck",
        "WHERE l.name = {name} AND l.holder = {holder} AND l.expires_at >= {now};",
        "WHERE l.name = {name} AND {holder} <> '';",
    ),
    (
        "sqlite::ReleaseInWithoutOwnerCheck",
        "AND l.holder = {holder} AND l.token = {token};",
        ";",
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
        "VALUES ({name}, {holder}, {now}, {now} + {ttl}",
        "VALUES ({name}, {holder}, 1, {now} + {ttl}",
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
        "(l.holder IS NULL OR l.expires_at <= {now}) AND",
        "l.holder IS NULL AND",
    ),
    (
        "sqlite::LeaseNeverEnds",
        "(holder IS NULL OR expires_at <= {now})",
        "holder IS NULL",
    ),
    (
        "sql::ReaderPassesWaitingWriter",
        "(b.room IS NULL OR {room} = 1)",
        "{room} = 1",
    ),
    (
        "sql::NewcomerPassesWaiters",
        "b.token < 0 AND b.expires_at > {now}",
        "b.token < 0 AND 1 = 0",
    ),
    (
        "postgres::LastOneFirst",
        "ORDER BY h.token DESC, h.holder",
        "ORDER BY h.token, h.holder",
    ),
    (
        "sql::LateAttemptTakesPart",
        "THEN b.token = -9223372036854775807",
        "THEN 1 = 0",
    ),
    (
        "sql::DeadWriterWaits",
        "{now} + {window}",
        "{now} + 100 * {window}",
    ),
    ("sql::FirstReleaseEndsAll", "THEN '~' END", "THEN NULL END"),
    ("sql::OneMorePermit", "< {room}", "<= {room}"),
    (
        "sql::OneMorePermit",
        "f.together <= f.most",
        "f.together <= f.most + 1",
    ),
    (
        "postgres::RenewalShortensOthers",
        "SET expires_at = greatest(l.expires_at, {now} + {ttl})\n    WHERE l.name IN (SELECT",
        "SET expires_at = {now} + {ttl}\n    WHERE l.name IN (SELECT",
    ),
    (
        "mysql::RenewalShortensOthers",
        "    l.expires_at = GREATEST(l.expires_at, @lockkit_now + {ttl})\nWHERE",
        "    l.expires_at = @lockkit_now + {ttl}\nWHERE",
    ),
    (
        "sqlite::RenewalShortensOthers",
        "SET expires_at = (SELECT max(h.expires_at) FROM {holds} AS h WHERE h.name = l.name AND h.token > 0)",
        "SET expires_at = {now} + {ttl}",
    ),
];
