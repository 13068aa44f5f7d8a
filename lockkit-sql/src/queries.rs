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
    pub(crate) sweep: Template,
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

/// How a database writes those queries: whole ones, and parts of the others.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) acquire: &'static str,
    pub(crate) release: &'static str,
    pub(crate) is_mine: &'static str,
    pub(crate) renew: &'static str,
    pub(crate) purge: &'static str,
    pub(crate) break_lock: &'static str,
    pub(crate) guard: &'static str,
    pub(crate) release_in: String,
    pub(crate) release_in_at_once: Option<String>,
    pub(crate) txlock: &'static str,
    pub(crate) columns: &'static str,
    /// Sets the isolation level of the next transaction.
    pub(crate) level: &'static str,
    /// Begins a transaction.
    pub(crate) start: &'static str,
    pub(crate) commit: &'static str,
    /// Commits before the reply is read, where transactions of a name run beside each other. Of two, of which neither
    /// sees what the other writes, one then sees what the other has written.
    pub(crate) committed: &'static str,
    /// Inserts the row of a new name.
    pub(crate) make_row: &'static str,
    /// Locks the row of the name if it is one of `{which}`.
    pub(crate) lock: &'static str,
    /// How a step locks it that grants nothing: it passes guarded transactions, where a database can.
    pub(crate) mark: &'static str,
    /// The name if its row was locked, else null.
    pub(crate) mine: &'static str,
    /// Whether that row says that no others hold together.
    pub(crate) void: &'static str,
    pub(crate) greatest: &'static str,
    /// Puts the values of an insert into the row that is there.
    pub(crate) upsert: &'static str,
    pub(crate) renew_shared: &'static str,
    /// What makes the renewal wait for a locked row, if anything does.
    pub(crate) renew_in_turn: Option<&'static str>,
    /// Deletes holds of names that were not used for long.
    pub(crate) purge_shared: &'static str,
    /// Says in the row of the name, if it does not yet, that a ticket waits.
    pub(crate) announce: &'static str,
    /// Shortens the lease of a holder whose session has ended, where waiting for it is not enough.
    pub(crate) ask: &'static str,
    /// Elsewhere whether the session of the holder in a row `l` has ended, so that its lease is to be shortened.
    pub(crate) session_ended: &'static str,
    /// What a ticket sends that has found so.
    pub(crate) end_with_session: Option<&'static str>,
    /// Gives a place to a ticket that must wait, after `ask`.
    pub(crate) placed: &'static str,
    /// Notifies the waiters of the name.
    pub(crate) notify: &'static str,
    /// Gives what a hold beside others leaves to those that wait.
    pub(crate) hand_on: &'static str,
}

/// [`Words::is_mine`] where rows are locked.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const IS_MINE: &str = include_str!("sql/is_mine.sql");

/// [`Words::void`] and [`Words::upsert`] of PostgreSQL and SQLite.
pub(crate) const VOID: &str =
    "NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = '~')";
pub(crate) const UPSERT: &str = "ON CONFLICT (name, holder) DO UPDATE
        SET token = excluded.token, expires_at = excluded.expires_at, room = excluded.room";

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

/// Writes what is known of waiting tickets into a query.
pub(crate) fn with_places(query: &str) -> String {
    let words = [
        ("{before}", BEFORE),
        ("{place}", "({place_end} - {now})"),
        ("{place_end}", PLACE_END),
        ("{last_place}", LAST_PLACE),
        ("{waiters}", WAITERS),
        ("{withdrawn}", WITHDRAWN),
    ];
    replace(query, &words)
}

/// What a step puts into its files.
type Parts = [(&'static str, &'static str)];

const SKIP: (&str, &str) = ("{skip}", "SKIP LOCKED");

const SHARE: &Parts = &[
    SKIP,
    // A ticket that must wait locks no row.
    (
        "{which}",
        "(l.holder IS NULL OR l.holder = '~' OR l.expires_at <= {now}) AND ({fits} OR EXISTS (
             SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0))",
    ),
    (
        "{refused}",
        "l.holder <> '~' AND l.expires_at > {now} OR NOT ({fits})",
    ),
    ("{token}", "{greatest}(l.token + 1, {now})"),
    ("{until}", "{now} + {ttl}"),
    // Spells out `Mode::fits`, and that no ticket is before this one.
    (
        "{fits}",
        "NOT EXISTS (SELECT 1 {before})
         AND (SELECT count(*) FROM {holds} AS h JOIN {table} AS n ON n.name = h.name AND n.holder = '~'
              WHERE h.name = {name} AND h.token > 0 AND h.expires_at > {now}) < {room}",
    ),
];

const TURN: &Parts = &[
    SKIP,
    ("{which}", "1 = 1"),
    // For at least half of the time that the last of them lasts.
    (
        "{told}",
        "{last_place} <= {now} + 2 * ({greatest}(l.waiting_until, {now}) - {now})",
    ),
];

const ANY: &Parts = &[SKIP, ("{which}", "1 = 1")];

/// The row of the name must say for how long any ticket waits: each renews its place long before this ends.
const PLACES: &Parts = &[
    SKIP,
    ("{which}", "l.waiting_until < {now} + {window} / 6 * 5"),
];

const UNSHARE: &Parts = &[
    // Waits for other steps: no transaction of an application locks the row while a lease lasts.
    ("{skip}", ""),
    ("{which}", "l.holder = '~' AND l.expires_at > {now}"),
];

const ADOPT: &Parts = &[
    SKIP,
    (
        "{which}",
        "l.holder IN ({from}, {holder}) AND l.expires_at > {now}",
    ),
];

const ADOPT_SHARED: &Parts = &[
    SKIP,
    (
        "{which}",
        "l.holder IN ({from}, '~') AND l.expires_at > {now}",
    ),
    (
        "{refused}",
        "NOT EXISTS (
             SELECT 1 FROM {table} AS n
             WHERE n.name = {name} AND n.holder = {from} AND n.expires_at > {now})
         AND NOT EXISTS (
             SELECT 1 FROM {holds} AS h JOIN {table} AS n ON n.name = h.name AND n.holder = '~'
             WHERE h.name = {name} AND h.holder IN ({from}, {holder}) AND h.token > 0 AND h.expires_at > {now}
               AND n.expires_at > {now})",
    ),
    ("{token}", "l.token"),
    ("{until}", "{greatest}(l.expires_at, {now} + {ttl})"),
    ("{fits}", "l.holder = {from}"),
];

const TAKE_SHARE: &str = include_str!("sql/share.sql");
const SHARE_SEEN: &str = include_str!("sql/share_seen.sql");

const HELD: &str = "SELECT 1 FROM {table} AS l
    WHERE l.name = {name} AND l.holder IS NOT NULL AND l.expires_at > {now};";

const PROBE: &str = "SELECT l.label, h.name, h.holder, h.token, h.expires_at, h.room, h.label, h.note, h.session \
     FROM {table} AS l, {holds} AS h WHERE 1 = 0;";

impl Words {
    /// Writes them into a query.
    fn write(&self, text: &str) -> String {
        let words = [
            ("{start}", self.start),
            ("{level}", self.level),
            ("{commit}", self.commit),
            ("{committed}", self.committed),
            ("{void}", self.void),
            ("{greatest}", self.greatest),
            ("{upsert}", self.upsert),
            ("{ask}", self.ask),
            ("{session_ended}", self.session_ended),
            ("{placed}", self.placed),
            ("{notify}", self.notify),
        ];
        replace(text, &words)
    }
}

/// Writes the words of a database into the queries.
struct Writer<'w, R> {
    words: &'w Words,
    /// Writes the table into a query.
    read: R,
}

impl<R: Fn(&str) -> Template> Writer<'_, R> {
    fn query(&self, text: &str) -> Template {
        debug_assert!(!text.trim().is_empty(), "a query is missing");
        (self.read)(&self.words.write(text))
    }

    /// A transaction.
    fn step(&self, files: &[&str], parts: &Parts) -> Template {
        let text = [&["{start}"], files, &["{commit}"]].concat().join("\n");
        self.query(&replace(&text.replace("{mine}", self.words.mine), parts))
    }

    /// What a step would see.
    fn look(&self, seen: &str, parts: &Parts) -> Template {
        let seen = seen.replace("{mine}", "NULL").replace("{told}", "NULL");
        self.query(&replace(&seen, parts))
    }

    fn share(&self) -> Taking {
        let Words { make_row, lock, .. } = self.words;
        // Waits for the steps of others that hold: no transaction of an application locks their row.
        let wait = lock.replace("{skip}", "").replace(
            "({which})",
            "l.holder = '~' AND l.expires_at > {now} AND ({which})",
        );
        Taking {
            step: self.step(&[make_row, &wait, lock, TAKE_SHARE, SHARE_SEEN], SHARE),
            look: self.look(SHARE_SEEN, SHARE),
        }
    }

    fn turn(&self) -> Taking {
        let Words { make_row, lock, .. } = self.words;
        let (turn, seen) = (
            include_str!("sql/turn.sql"),
            include_str!("sql/turn_seen.sql"),
        );
        Taking {
            step: self.step(&[make_row, lock, turn, "{committed}", seen], TURN),
            look: self.look(seen, TURN),
        }
    }

    fn adopt_shared(&self) -> Template {
        let Words { lock, hand_on, .. } = self.words;
        let adopt = include_str!("sql/adopt_shared.sql");
        let let_in = hand_on.replace("{front}", "{front_on_disk}");
        self.step(
            &[lock, adopt, TAKE_SHARE, &let_in, SHARE_SEEN],
            ADOPT_SHARED,
        )
    }
}

impl Common {
    /// `rules`: what the store can do; `read` writes the table into a query.
    pub(crate) fn new(words: &Words, rules: Capabilities, read: impl Fn(&str) -> Template) -> Self {
        let writer = Writer { words, read };
        let query = |text: &str| writer.query(text);
        let Words { lock, make_row, .. } = words;
        let mark = lock.replace("FOR UPDATE", words.mark);
        let place = include_str!("sql/place.sql");
        let unshare = include_str!("sql/unshare.sql");
        let withdraw = include_str!("sql/withdraw.sql");
        Self {
            acquire: query(words.acquire),
            release: query(words.release),
            is_mine: query(words.is_mine),
            renew: query(words.renew),
            list: query(include_str!("sql/list.sql")),
            purge: query(words.purge),
            break_lock: query(words.break_lock),
            guard: query(words.guard),
            release_in: query(&words.release_in),
            release_in_at_once: words.release_in_at_once.as_deref().map(query),
            txlock: query(words.txlock),
            make_row: query(&[words.level, make_row, HELD].join("\n")),
            columns: query(words.columns),
            probe: query(PROBE),
            share: writer.share(),
            places_at_once: !words.placed.is_empty(),
            turn: writer.turn(),
            unshare: writer.step(&[lock, unshare, words.hand_on], UNSHARE),
            renew_shared: query(&replace(words.renew_shared, &[SKIP])),
            renew_in_turn: words.renew_in_turn.map(|limit| {
                let wait = words.renew_shared.replace("{skip}", "");
                query(&[limit, &wait].concat())
            }),
            end_with_session: words.end_with_session.map(query),
            place: writer.step(&[words.announce, place], PLACES),
            withdraw: writer.step(&[make_row, &mark, withdraw], ANY),
            sweep: query(include_str!("sql/sweep.sql")),
            note: query(include_str!("sql/note.sql")),
            adopt: writer.step(&[lock, include_str!("sql/adopt.sql")], ADOPT),
            adopt_shared: writer.adopt_shared(),
            purge_shared: query(words.purge_shared),
            rules,
            waiters: Arc::default(),
        }
    }
}

/// Writes texts in place of words, one word after the other.
pub(crate) fn replace(text: &str, words: &[(&str, impl AsRef<str>)]) -> String {
    let mut text = text.to_owned();
    for (word, by) in words {
        text = text.replace(word, by.as_ref());
    }
    text
}
