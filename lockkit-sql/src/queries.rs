//! The queries that databases share, and the words that each puts into them.

use std::collections::HashSet;
use std::sync::Mutex;

use lockkit_core::{Capabilities, HolderId};

use crate::template::Template;

/// The queries of the steps that are alike on all databases.
#[derive(Debug)]
pub struct Common {
    pub(crate) renew: Template,
    pub(crate) list: Template,
    pub(crate) purge: Template,
    /// Ends a hold that was seen.
    pub(crate) break_lock: Template,
    /// Returns a row if a hold lasts, and blocks takeovers until its transaction ends.
    pub(crate) guard: Template,
    /// `None` with a table of an older version, which has exclusive holds alone.
    pub(crate) shares: Option<Shares>,
}

/// The queries of holds beside others, which need the second table.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) rules: Capabilities,
    /// Exclusive tickets that may have a row that keeps readers out.
    pub(crate) waiting: Mutex<HashSet<HolderId>>,
    pub(crate) probe: Template,
    pub(crate) share: Template,
    pub(crate) unshare: Template,
    pub(crate) renew: Template,
    pub(crate) writer_waits: Template,
    pub(crate) writer_left: Template,
    pub(crate) note: Template,
    pub(crate) adopt: Template,
    pub(crate) adopt_shared: Template,
    pub(crate) purge: Template,
}

/// How a database writes the parts of those queries.
#[derive(Debug)]
pub(crate) struct Words {
    /// Begins a transaction.
    pub(crate) start: &'static str,
    pub(crate) commit: &'static str,
    /// Inserts the row of a new name.
    pub(crate) make_row: &'static str,
    /// Locks the row of the name if it is one of `{which}`.
    pub(crate) lock: &'static str,
    /// Whether it has done so.
    pub(crate) locked: &'static str,
    pub(crate) greatest: &'static str,
    /// Between the values of an insert and what to update instead.
    pub(crate) upsert: &'static str,
    pub(crate) renew: &'static str,
    /// Asks for a notification of the release.
    pub(crate) ask: &'static str,
    /// Notifies the waiters of the name.
    pub(crate) notify: &'static str,
}

/// Rows of names for which a holder of the second table may be the first.
const SHARED: &str = "l.holder IS NULL OR l.holder = '~' OR l.expires_at <= {now}";
/// Spells out [`lockkit_core::contract::Mode::fits`].
const FITS: &str = "NOT EXISTS (SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.token < 0)
  AND (SELECT count(*) FROM {holds} AS h WHERE h.name = {name} AND h.token > 0) < {room}";
const PROBE: &str = "SELECT l.label, h.name, h.holder, h.token, h.expires_at, h.room, h.label, h.note \
     FROM {table} AS l, {holds} AS h WHERE 1 = 0;";

impl Shares {
    /// `read` writes the table into a query.
    pub(crate) fn new(words: &Words, rules: Capabilities, read: impl Fn(&str) -> Template) -> Self {
        let step = |parts: &[&str], which: &str| {
            let text = [&[words.start], parts, &[words.commit]].concat();
            let text = text.join("\n").replace("{locked}", words.locked);
            text.replace("{which}", which)
        };
        let read = |text: &str| {
            let text = text.replace("{start}", words.start);
            let text = text.replace("{commit}", words.commit);
            let text = text.replace("{greatest}", words.greatest);
            let text = text.replace("{upsert}", words.upsert);
            read(
                &text
                    .replace("{ask}", words.ask)
                    .replace("{notify}", words.notify),
            )
        };
        let share = |token: &str, until: &str, fits: &str| {
            include_str!("sql/share.sql")
                .replace("{token}", token)
                .replace("{until}", until)
                .replace("{fits}", fits)
        };
        let join = share("{greatest}(l.token + 1, {now})", "{now} + {ttl}", FITS);
        let hand_over = share(
            "l.token",
            "{greatest}(l.expires_at, {now} + {ttl})",
            "l.holder = {from}",
        );
        let adopt = include_str!("sql/adopt.sql");
        let adopt_shared = include_str!("sql/adopt_shared.sql");
        Self {
            rules,
            waiting: Mutex::default(),
            probe: read(PROBE),
            share: read(&step(&[words.make_row, words.lock, &join], SHARED)),
            unshare: read(&step(
                &[words.lock, include_str!("sql/unshare.sql")],
                "l.holder = '~'",
            )),
            renew: read(words.renew),
            writer_waits: read(include_str!("sql/writer_waits.sql")),
            writer_left: read(include_str!("sql/writer_left.sql")),
            note: read(include_str!("sql/note.sql")),
            adopt: read(&step(
                &[words.lock, adopt],
                "l.holder IN ({from}, {holder}) AND l.expires_at > {now}",
            )),
            adopt_shared: read(&step(
                &[words.lock, adopt_shared, &hand_over],
                "l.holder IN ({from}, '~') AND l.expires_at > {now}",
            )),
            purge: read(include_str!("sql/purge_shares.sql")),
        }
    }

    /// All queries, for tests.
    #[cfg(test)]
    pub(crate) fn all(&self) -> [&Template; 10] {
        [
            &self.probe,
            &self.share,
            &self.unshare,
            &self.renew,
            &self.writer_waits,
            &self.writer_left,
            &self.note,
            &self.adopt,
            &self.adopt_shared,
            &self.purge,
        ]
    }
}
