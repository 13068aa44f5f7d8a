//! Searches for a token that is given twice, or that does not grow.
//!
//! Each message may be late, lost or repeated: a node can receive any attempt of a ticket at any time after the ticket
//! has begun, with any token. A hold at a node can end at any time, by a release, a break, or the end of its lease.
//! What a ticket does after it gave nodes up it does as another ticket.

use crate::search;

const NODES: usize = 3;
const TICKETS: usize = 2;
const TOKENS: u8 = 3;

/// What is wrong with the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Right,
    /// The last token is accepted again.
    AcceptsEqual,
    /// A raised token is compared with that of the ticket only.
    RaisesBelowLast,
    /// Once, a node forgets which token it accepted last.
    Forgets,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Node {
    /// The ticket that holds, from 1 on.
    holder: u8,
    /// The token that was accepted for it.
    accepted: u8,
    last: u8,
    /// Which tokens it has ever reported to each ticket.
    reported: [u8; TICKETS],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// Sorted: they are alike.
    nodes: [Node; NODES],
    /// For each ticket that has begun, the largest token that was granted before, and 1.
    begun: [u8; TICKETS],
    forgot: bool,
}

impl State {
    fn granted(&self, ticket: usize, token: u8) -> bool {
        let reports = |node: &&Node| node.reported[ticket] & 1 << token != 0;
        self.nodes.iter().filter(reports).count() >= crate::majority(NODES)
    }

    fn tokens(&self, ticket: usize) -> impl Iterator<Item = u8> {
        (1..=TOKENS).filter(move |token| self.granted(ticket, *token))
    }

    fn is_bad(&self) -> bool {
        let twice = (1..=TOKENS).any(|token| {
            let having = (0..TICKETS).filter(|ticket| self.granted(*ticket, token));
            having.count() > 1
        });
        let falls =
            (0..TICKETS).any(|ticket| self.tokens(ticket).any(|it| it < self.begun[ticket]));
        twice || falls
    }

    fn next(&self, rule: Rule, found: &mut Vec<Self>) {
        for ticket in 0..TICKETS {
            if self.begun[ticket] == 0 {
                let others = (0..TICKETS).filter(|other| *other != ticket);
                let largest = others.flat_map(|other| self.tokens(other)).max();
                let mut state = self.clone();
                state.begun[ticket] = 1 + largest.unwrap_or(0);
                found.push(state);
            }
        }
        for at in 0..NODES {
            if at > 0 && self.nodes[at] == self.nodes[at - 1] {
                continue;
            }
            let mut push = |node: Node, forgot: bool| {
                if node == self.nodes[at] {
                    return;
                }
                let mut state = self.clone();
                state.nodes[at] = node;
                state.nodes.sort_unstable();
                state.forgot = forgot;
                found.push(state);
            };
            let node = self.nodes[at];
            let free = Node {
                holder: 0,
                accepted: 0,
                ..node
            };
            push(free, self.forgot);
            if rule == Rule::Forgets && !self.forgot {
                push(Node { last: 0, ..node }, true);
            }
            let begun = (0..TICKETS).filter(|ticket| self.begun[*ticket] > 0);
            for (ticket, token) in begun.flat_map(|it| (1..=TOKENS).map(move |token| (it, token))) {
                for raise in [false, true] {
                    push(node.attempt(rule, ticket, token, raise), self.forgot);
                }
            }
        }
    }
}

impl Node {
    /// As `accept.lua`.
    fn attempt(mut self, rule: Rule, ticket: usize, token: u8, raise: bool) -> Self {
        let name = u8::try_from(ticket + 1).unwrap();
        let own = self.holder == name;
        if self.holder != 0 && !own {
            return self;
        }
        self.holder = name;
        let accepts = match rule {
            Rule::AcceptsEqual => token >= self.last,
            Rule::RaisesBelowLast if own => token > self.accepted,
            _ => token > self.last,
        };
        if accepts && (!own || raise) {
            self.accepted = token;
            self.last = token;
        }
        if self.accepted != 0 {
            self.reported[ticket] |= 1 << self.accepted;
        }
        self
    }
}

fn searched(rule: Rule) -> Result<usize, usize> {
    let first = State::default();
    search(first, |state, found| state.next(rule, found), State::is_bad)
}

#[test]
fn tokens_are_unique_and_grow() {
    let states = searched(Rule::Right);
    println!("{states:?} states");
    assert!(states.is_ok_and(|states| states > 10_000), "{states:?}");
}

#[test]
fn broken_rules_of_tokens_are_found() {
    for rule in [Rule::AcceptsEqual, Rule::RaisesBelowLast, Rule::Forgets] {
        let steps = searched(rule).expect_err("nothing was found");
        println!("{rule:?}: {steps} steps");
    }
}
