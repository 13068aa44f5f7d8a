//! The queries that databases share, and the words that each puts into them.

use std::sync::Arc;

use lockkit_core::Capabilities;
use lockkit_core::store::waiters::Waiters;

use crate::places::Known;
use crate::template::Template;

/// The queries that every database has.
#[derive(Debug)]
pub struct Common {
    /// Takes a free lock alone, if no ticket waits.
    pub(crate) acquire: Template,
    pub(crate) release: Template,
    /// Returns a row if a ticket still holds, after a release that found nothing: then its row is locked.
    pub(crate) is_mine: Template,
    pub(crate) renew: Template,
    pub(crate) list: Template,
    pub(crate) purge: Template,
    /// Ends a hold that was seen.
    pub(crate) break_lock: Template,
    /// Returns a row if a hold lasts, and blocks takeovers until its transaction ends.
    pub(crate) guard: Template,
    /// Ends a hold that lasts, in a transaction of the application. Its last statement says whether it did.
    pub(crate) release_in: Template,
    /// The same, which does nothing if the row is locked. Where it is worth it to prepare that.
    pub(crate) release_in_at_once: Option<Template>,
    /// Takes a lock for as long as a transaction of the application lasts.
    pub(crate) txlock: Template,
    /// Inserts the row of a name. Returns a row if the lock is held.
    pub(crate) make_row: Template,
    /// What is read of a table to compare it.
    pub(crate) columns: Template,
    /// Reads no row, and fails if the second table does not fit.
    pub(crate) probe: Template,
    /// Of a ticket that shares.
    pub(crate) share: Taking,
    /// Whether that also gives a place to a ticket that must wait.
    pub(crate) places_at_once: bool,
    /// Of an exclusive ticket, where nothing tells it of its turn.
    pub(crate) turn: Taking,
    pub(crate) unshare: Template,
    pub(crate) renew_shared: Template,
    /// Renews holds of one name, and waits for its row, where that is better than to look again.
    pub(crate) renew_in_turn: Option<Template>,
    /// Shortens the lease of a holder whose session has ended, where that is not a part of `share`.
    pub(crate) end_with_session: Option<Template>,
    pub(crate) place: Template,
    pub(crate) withdraw: Template,
    pub(crate) note: Template,
    pub(crate) adopt: Template,
    pub(crate) adopt_shared: Template,
    pub(crate) purge_shared: Template,
    /// What the store can do.
    pub(crate) rules: Capabilities,
    /// The tickets of this store.
    pub(crate) waiters: Arc<Waiters<Known>>,
}

/// How a ticket becomes a holder.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(crate) step: Template,
    /// What the ticket would find.
    pub(crate) look: Template,
}

/// Texts in place of words, which stand in braces in the queries.
pub(crate) type Words<'w> = [(&'static str, &'w str)];

/// [`Common::is_mine`] where rows are locked.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const IS_MINE: &str = include_str!("sql/is_mine.sql");

/// `void` and `upsert` of PostgreSQL and SQLite.
pub(crate) const VOID: &str =
    "NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = '~')";
pub(crate) const UPSERT: &str = "ON CONFLICT (name, holder) DO UPDATE
        SET token = excluded.token, expires_at = excluded.expires_at, room = excluded.room";

/// The words that mean the same on every database, or nothing on those that do not say otherwise. Each database has the
/// queries that are named as a field of [`Common`], and
/// - `mine`: the name if its row was locked, else null;
/// - `void`: whether that row says that no others hold together;
/// - `greatest`: the function;
/// - `upsert`: puts the values of an insert into the row that is there;
/// - `announce`: says in the row of the name, if it does not yet, that a ticket waits;
/// - `session_ended`: whether the session of the holder in a row `l` has ended, so that its lease is to be shortened,
///   where `ask` does not find out;
/// - `notify`: notifies the waiters of the name.
const SHARED: &Words<'static> = &[
    // Which rows `lock` locks, and what it does with one that another transaction has locked.
    ("which", "1 = 1"),
    ("skip", "SKIP LOCKED"),
    ("locking", "FOR UPDATE"),
    // How a step locks a row that grants nothing: it passes guarded transactions, where a database can.
    ("mark", "FOR UPDATE"),
    // Locks the row of the name, where rows are locked.
    ("lock", ""),
    // Sets the isolation level of the next transaction.
    ("level", ""),
    // Begins a transaction, and ends it.
    ("start", ""),
    ("commit", ""),
    // Commits before the reply is read, where transactions of a name run beside each other. Of two, of which neither
    // sees what the other writes, one then sees what the other has written.
    ("committed", ""),
    // Shortens the lease of a holder whose session has ended, where waiting for it is not enough.
    ("ask", ""),
    // Gives a place to a ticket that must wait, after `ask`.
    ("placed", ""),
    // Gives what a hold beside others leaves to those that wait.
    ("hand_on", ""),
    ("before", BEFORE),
    ("place", "({place_end} - {now})"),
    ("place_end", PLACE_END),
    ("last_place", LAST_PLACE),
    ("waiters", WAITERS),
    ("withdrawn", WITHDRAWN),
    ("share", include_str!("sql/share.sql")),
    ("share_seen", include_str!("sql/share_seen.sql")),
    ("turn", include_str!("sql/turn.sql")),
    ("turn_seen", include_str!("sql/turn_seen.sql")),
    ("unshare", include_str!("sql/unshare.sql")),
    ("put_in_place", include_str!("sql/place.sql")),
    ("withdraw", include_str!("sql/withdraw.sql")),
    ("take_over", include_str!("sql/adopt.sql")),
    ("take_over_shared", include_str!("sql/adopt_shared.sql")),
];

/// The token of a ticket that was withdrawn: it is behind all places.
const WITHDRAWN: &str = "-9223372036854775807";

/// The tickets before this one, and this one if it was withdrawn. A ticket that shares waits for exclusive ones alone:
/// each that looks takes what is free. A row with a token below zero is a place: the token is the negative time at which
/// its ticket began to wait.
const BEFORE: &str = "FROM {holds} AS b
    WHERE b.name = {name} AND b.token < 0 AND b.expires_at > {now}
      AND CASE WHEN b.holder = {holder} THEN b.token = {withdrawn}
               ELSE (b.room IS NULL OR {room} = 1) AND b.token > coalesce((
                   SELECT o.token FROM {holds} AS o
                   WHERE o.name = {name} AND o.holder = {holder} AND o.token < 0), {withdrawn}) END";

const PLACE_END: &str = "(SELECT p.expires_at FROM {holds} AS p
    WHERE p.name = {name} AND p.holder = {holder} AND p.token < 0 AND p.token > {withdrawn})";

const LAST_PLACE: &str = "coalesce((SELECT max(w.expires_at) FROM {holds} AS w
    WHERE w.name = {name} AND w.token < 0), 0)";

/// How many wait for the name of a row `l`.
const WAITERS: &str = "(SELECT count(*) FROM {holds} AS w
    WHERE w.name = l.name AND w.token < 0 AND w.token > {withdrawn} AND w.expires_at > {now})";

const SHARE: &Words<'static> = &[
    // A ticket that must wait locks no row.
    (
        "which",
        "(l.holder IS NULL OR l.holder = '~' OR l.expires_at <= {now}) AND ({fits} OR EXISTS (
             SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0))",
    ),
    (
        "refused",
        "l.holder <> '~' AND l.expires_at > {now} OR NOT ({fits})",
    ),
    ("token", "{greatest}(l.token + 1, {now})"),
    ("until", "{now} + {ttl}"),
    // Spells out `Mode::fits`, and that no ticket is before this one.
    (
        "fits",
        "NOT EXISTS (SELECT 1 {before})
         AND (SELECT count(*) FROM {holds} AS h JOIN {table} AS n ON n.name = h.name AND n.holder = '~'
              WHERE h.name = {name} AND h.token > 0 AND h.expires_at > {now}) < {room}",
    ),
];

const TURN: &Words<'static> = &[
    // For at least half of the time that the last of them lasts.
    (
        "told",
        "{last_place} <= {now} + 2 * ({greatest}(l.waiting_until, {now}) - {now})",
    ),
];

/// No row is locked, and none is to tell of places.
const NO_ROW: &Words<'static> = &[("mine", "NULL"), ("told", "NULL")];

/// The row of the name must say for how long any ticket waits: each renews its place long before this ends.
const PLACES: &Words<'static> = &[("which", "l.waiting_until < {now} + {window} / 6 * 5")];

const UNSHARE: &Words<'static> = &[
    // Waits for other steps: no transaction of an application locks the row while a lease lasts.
    ("skip", ""),
    ("which", "l.holder = '~' AND l.expires_at > {now}"),
];

const ADOPT: &Words<'static> = &[(
    "which",
    "l.holder IN ({from}, {holder}) AND l.expires_at > {now}",
)];

const ADOPT_SHARED: &Words<'static> = &[
    (
        "which",
        "l.holder IN ({from}, '~') AND l.expires_at > {now}",
    ),
    (
        "refused",
        "NOT EXISTS (
             SELECT 1 FROM {table} AS n
             WHERE n.name = {name} AND n.holder = {from} AND n.expires_at > {now})
         AND NOT EXISTS (
             SELECT 1 FROM {holds} AS h JOIN {table} AS n ON n.name = h.name AND n.holder = '~'
             WHERE h.name = {name} AND h.holder IN ({from}, {holder}) AND h.token > 0 AND h.expires_at > {now}
               AND n.expires_at > {now})",
    ),
    ("token", "l.token"),
    ("until", "{greatest}(l.expires_at, {now} + {ttl})"),
    ("fits", "l.holder = {from}"),
    // A grant waits for the disk.
    ("unsynced", "NULL"),
];

/// A release in a transaction of the application, which commits as the application says.
const RELEASE_IN: &Words<'static> = &[("unsynced", "NULL"), ("token_too", "AND m.token = {token}")];

const HELD: &str = "SELECT 1 FROM {table} AS l
    WHERE l.name = {name} AND l.holder IS NOT NULL AND l.expires_at > {now};";

const PROBE: &str = "SELECT l.label, h.name, h.holder, h.token, h.expires_at, h.room, h.label, h.note, h.session \
     FROM {table} AS l, {holds} AS h WHERE 1 = 0;";

impl Common {
    /// `rules`: what the store can do; `read` makes a template of a query.
    pub(crate) fn new(
        words: &Words<'_>,
        rules: Capabilities,
        read: impl Fn(&str) -> Template,
    ) -> Self {
        let with =
            |text: &str, parts: &Words<'static>| read(&write(text, &[parts, words].concat()));
        let query = |text: &str| with(text, &[]);
        let has = |word: &str| words.iter().any(|(known, _)| *known == word);
        let optional = |word: &str, parts: &Words<'static>| {
            has(word).then(|| with(&["{", word, "}"].concat(), parts))
        };
        let step = |queries: &str, parts: &Words<'static>| {
            with(&["{start}", queries, "{commit}"].join("\n"), parts)
        };
        let taking = |queries: &str, seen: &str, parts: &Words<'static>| Taking {
            step: step(&[queries, seen].join("\n"), parts),
            look: with(seen, &[NO_ROW, parts].concat()),
        };
        let share = ["{make_row}", &wait_for_others(words), "{lock}\n{share}"].join("\n");
        let turn = "{make_row}\n{lock}\n{turn}\n{committed}";
        Self {
            acquire: query("{acquire}"),
            release: query("{release}"),
            is_mine: query("{is_mine}"),
            renew: query("{renew}"),
            list: query(include_str!("sql/list.sql")),
            purge: query("{purge}"),
            break_lock: query("{break_lock}"),
            guard: query("{guard}"),
            release_in: with("{release_in}", RELEASE_IN),
            release_in_at_once: optional("release_in_at_once", RELEASE_IN),
            txlock: query("{txlock}"),
            make_row: query(&["{level}", "{make_row}", HELD].join("\n")),
            columns: query("{columns}"),
            probe: query(PROBE),
            share: taking(&share, "{share_seen}", SHARE),
            places_at_once: has("placed"),
            turn: taking(turn, "{turn_seen}", TURN),
            unshare: step("{lock}\n{unshare}\n{hand_on}", UNSHARE),
            renew_shared: query("{renew_shared}"),
            renew_in_turn: optional("renew_in_turn", &[("skip", "")]),
            end_with_session: optional("end_with_session", &[]),
            place: step("{announce}\n{put_in_place}", PLACES),
            withdraw: step("{make_row}\n{lock}\n{withdraw}", &[("locking", "{mark}")]),
            note: query(include_str!("sql/note.sql")),
            adopt: step("{lock}\n{take_over}", ADOPT),
            adopt_shared: step(
                "{lock}\n{take_over_shared}\n{share}\n{hand_on}\n{share_seen}",
                ADOPT_SHARED,
            ),
            purge_shared: query("{purge_shared}"),
            rules,
            waiters: Arc::default(),
        }
    }
}

/// Waits for the steps of others that hold: no transaction of an application locks their row.
fn wait_for_others(words: &Words<'_>) -> String {
    let lock = words.iter().find(|(word, _)| *word == "lock");
    lock.map_or("", |(_, lock)| lock)
        .replace("{skip}", "")
        .replace(
            "({which})",
            "l.holder = '~' AND l.expires_at > {now} AND ({which})",
        )
}

/// Writes texts in place of words, and of the words in those texts. The first of several texts counts.
pub(crate) fn write(text: &str, words: &Words<'_>) -> String {
    let mut written = String::with_capacity(text.len());
    for (index, piece) in text.split(['{', '}']).enumerate() {
        let is_word = index % 2 == 1;
        let mut known = words.iter().chain(SHARED);
        match known.find(|(word, _)| is_word && *word == piece) {
            Some((_, by)) => written.push_str(&write(by, words)),
            // The value of a parameter takes its place later.
            None if is_word => written.extend(["{", piece, "}"]),
            None => written.push_str(piece),
        }
    }
    written
}
