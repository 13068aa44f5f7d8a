//! The text that is sent for each step.

use lockkit_core::backend::Ticket;

use super::{SPELLING, Statements};
use crate::dialect::Which;
use crate::statement::{Values, push_bytes};

impl Statements {
    /// `whole`: also where its row is not known to be there.
    pub(super) fn acquire(&self, ticket: &Ticket, pinned: &str, whole: bool) -> String {
        let values = Values::of(ticket).text("pinned", pinned.to_owned());
        let mut text = self.acquire.with(&values, SPELLING);
        if whole {
            text.push('\n');
            text.push_str(&self.acquire_new.with(&values, SPELLING));
        }
        text
    }

    pub(super) fn look_again(&self, ticket: &Ticket) -> String {
        self.look_again.with(&Values::of(ticket), SPELLING)
    }

    pub(super) fn release(&self, ticket: &Ticket) -> String {
        self.release.with(&Values::of(ticket), SPELLING)
    }

    pub(super) fn look(&self, which: Which<'_>) -> String {
        let values = Values::new().text("what", condition(which));
        self.look.with(&values, SPELLING)
    }

    pub(super) fn unlocked(&self, which: Which<'_>) -> String {
        let values = Values::new().text("what", condition(which));
        self.unlocked.with(&values, SPELLING)
    }
}

fn condition(which: Which<'_>) -> String {
    let mut condition;
    match which {
        Which::Name(name) => {
            condition = "l.name = ".to_owned();
            push_bytes(&mut condition, name.as_str().as_bytes(), SPELLING);
        }
        Which::Prefix(prefix) => {
            condition = format!("LEFT(l.name, {}) = ", prefix.len());
            push_bytes(&mut condition, prefix.as_bytes(), SPELLING);
        }
    }
    condition
}
