//! The queries that databases share, and the words that each puts into them.

use std::sync::Arc;

use lockkit_core::Capabilities;
use lockkit_core::store::waiters::Waiters;

use crate::places::Known;
use crate::template::Template;

/// The queries of the steps that are alike on all databases.
#[derive(Debug)]
pub struct Common {
    pub(crate) renew: Template,
    pub(crate) list: Template,
    pub(crate) purge: Template,
    /// Ends a hold that was seen.
    pub(crate) break_lock: Template,
    /// Returns a row if a ticket still holds, after a release that found nothing: then its row is locked.
    pub(crate) is_mine: Template,
    /// Returns a row if a hold lasts, and blocks takeovers until its transaction ends.
    pub(crate) guard: Template,
    /// Ends a hold that lasts, in a transaction of the application. Its last statement says whether it did.
    pub(crate) release_in: Template,
    /// The same, which does nothing if the row is locked. Where it is worth it to prepare that.
    pub(crate) release_in_at_once: Option<Template>,
    pub(crate) shares: Shares,
    /// What the store can do.
    pub(crate) rules: Capabilities,
    /// The tickets of this store.
    pub(crate) waiters: Arc<Waiters<Known>>,
}

/// The queries of holds beside others, which need the second table.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) probe: Template,
    /// Of a ticket that shares.
    pub(crate) share: Taking,
    /// Whether that also gives a place to a ticket that must wait.
    pub(crate) places_at_once: bool,
    /// Of an exclusive ticket, where nothing tells it of its turn.
    pub(crate) turn: Taking,
    pub(crate) unshare: Template,
    pub(crate) renew: Template,
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
    pub(crate) purge: Template,
}

/// How a ticket becomes a holder.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(crate) step: Template,
    /// What the ticket would find.
    pub(crate) look: Template,
}

/// How a database writes the parts of those queries.
#[derive(Debug)]
pub(crate) struct Words {
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
    pub(crate) renew: &'static str,
    /// What makes the renewal wait for a locked row, if anything does.
    pub(crate) renew_in_turn: Option<&'static str>,
    /// Deletes holds of names that were not used for long.
    pub(crate) purge: &'static str,
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

const PROBE: &str = "SELECT l.label, h.name, h.holder, h.token, h.expires_at, h.room, h.label, h.note, h.session \
     FROM {table} AS l, {holds} AS h WHERE 1 = 0;";

impl Words {
    /// Writes them into a query.
    fn write(&self, text: &str) -> String {
        let words = [
            ("{start}", self.start),
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

/// How a database defines the tables.
#[derive(Debug)]
pub(crate) struct Types {
    /// The rights that an application needs, as comments.
    pub(crate) rights: &'static str,
    pub(crate) bytes: &'static str,
    pub(crate) holder: &'static str,
    pub(crate) number: &'static str,
    /// What the table of the locks has after its columns, for transactions that depend on a hold.
    pub(crate) key: &'static str,
    pub(crate) options: &'static str,
    /// What an opened table must have beside its columns, as the database shows it.
    pub(crate) parts: &'static [(&'static str, &'static str)],
}

/// The rights where there are users. Each statement names one table, as all servers understand it.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const RIGHTS: &str = "-- The rights of an application, with its user in place of app:
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO app;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {holds} TO app;
--
";

impl Types {
    /// The statements that create the tables, for [`definition`](crate::template::definition).
    pub(crate) fn ddl(&self) -> String {
        let words = [
            ("{rights}\n", self.rights),
            ("{bytes}", self.bytes),
            ("{holder}", self.holder),
            ("{number}", self.number),
            ("{key}", self.key),
            ("{options}", self.options),
        ];
        replace(include_str!("sql/table.sql"), &words)
    }

    /// What the table of the locks must have.
    pub(crate) fn expected(&self) -> Vec<(&'static str, &'static str)> {
        let columns = [
            ("name", self.bytes),
            ("holder", self.holder),
            ("token", self.number),
            ("expires_at", self.number),
            ("waiting_until", self.number),
            ("session", self.number),
            ("label", self.bytes),
        ];
        [&columns, self.parts].concat()
    }
}

impl Shares {
    /// `read` writes the table into a query.
    pub(crate) fn new(words: &Words, read: impl Fn(&str) -> Template) -> Self {
        let read = |text: &str| read(&words.write(text));
        let step = |files: &[&str], parts: &Parts| {
            let text = [&["{start}"], files, &["{commit}"]].concat().join("\n");
            read(&replace(&text.replace("{mine}", words.mine), parts))
        };
        let (share, turn) = (include_str!("sql/share.sql"), include_str!("sql/turn.sql"));
        let mark = words.lock.replace("FOR UPDATE", words.mark);
        let seen = include_str!("sql/share_seen.sql");
        let turn_seen = include_str!("sql/turn_seen.sql");
        let look = |seen: &str, parts| {
            let seen = seen.replace("{mine}", "NULL").replace("{told}", "NULL");
            read(&replace(&seen, parts))
        };
        // Waits for the steps of others that hold: no transaction of an application locks their row.
        let wait = words.lock.replace("{skip}", "");
        let wait = wait.replace(
            "({which})",
            "l.holder = '~' AND l.expires_at > {now} AND ({which})",
        );
        let adopt_shared = include_str!("sql/adopt_shared.sql");
        let let_in = words.hand_on.replace("{front}", "{front_on_disk}");
        Self {
            probe: read(PROBE),
            places_at_once: !words.placed.is_empty(),
            share: Taking {
                step: step(&[words.make_row, &wait, words.lock, share, seen], SHARE),
                look: look(seen, SHARE),
            },
            turn: Taking {
                step: step(
                    &[words.make_row, words.lock, turn, "{committed}", turn_seen],
                    TURN,
                ),
                look: look(turn_seen, TURN),
            },
            unshare: step(
                &[words.lock, include_str!("sql/unshare.sql"), words.hand_on],
                UNSHARE,
            ),
            renew: read(&replace(words.renew, &[SKIP])),
            renew_in_turn: words.renew_in_turn.map(|limit| {
                let wait = words.renew.replace("{skip}", "");
                read(&[limit, &wait].concat())
            }),
            end_with_session: words.end_with_session.map(&read),
            place: step(&[words.announce, include_str!("sql/place.sql")], PLACES),
            withdraw: step(
                &[words.make_row, &mark, include_str!("sql/withdraw.sql")],
                ANY,
            ),
            sweep: read(include_str!("sql/sweep.sql")),
            note: read(include_str!("sql/note.sql")),
            adopt: step(&[words.lock, include_str!("sql/adopt.sql")], ADOPT),
            adopt_shared: step(
                &[words.lock, adopt_shared, share, &let_in, seen],
                ADOPT_SHARED,
            ),
            purge: read(words.purge),
        }
    }
}

fn replace(text: &str, words: &[(&str, &str)]) -> String {
    let replace = |text: String, (word, by): &(&str, &str)| text.replace(word, by);
    words.iter().fold(text.to_owned(), replace)
}
