//! Searches for two clients that believe in a hold at once.
//!
//! One client holds at two of three nodes and renews twice; another one attempts once; one node loses its data. Each
//! request may come late or never, and a repair at any later time. A reply counts when the node has acted: one that
//! comes later makes a client believe less.

use crate::search;

const NODES: usize = 3;
/// The lease, and the quarantine.
const TTL: u8 = 3;

/// What is wrong with the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Right,
    RepairsInQuarantine,
    GrantsInQuarantine,
    /// A lease counts from the reply.
    CountsFromReply,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Who {
    #[default]
    Nobody,
    A,
    B,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    holder: Who,
    left: u8,
    quarantine: u8,
}

/// What has become of a request to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Request {
    #[default]
    OnItsWay,
    Yes,
    No,
}

/// A request to all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    age: u8,
    nodes: [Request; NODES],
}

impl Asked {
    const NOW: Self = Self {
        age: 0,
        nodes: [Request::OnItsWay; NODES],
    };

    fn refused(&self) -> usize {
        let no = self.nodes.iter().filter(|it| **it == Request::No);
        no.count()
    }

    fn is_majority(&self) -> bool {
        let yes = self.nodes.iter().filter(|it| **it == Request::Yes);
        yes.count() >= crate::majority(NODES)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; NODES],
    wiped: bool,
    /// How old A's belief is.
    believes: u8,
    renewals: [Option<Asked>; 2],
    /// Where A may repair.
    repairs: [bool; NODES],
    attempt: Option<Asked>,
    /// How old B's belief is.
    granted: Option<u8>,
}

impl State {
    fn first() -> Self {
        let held = Node {
            holder: Who::A,
            left: TTL,
            quarantine: 0,
        };
        Self {
            nodes: [held, Node::default(), held],
            wiped: false,
            believes: 0,
            renewals: [None; 2],
            repairs: [false; NODES],
            attempt: None,
            granted: None,
        }
    }

    fn is_bad(&self) -> bool {
        self.believes < TTL && self.granted.is_some_and(|age| age < TTL)
    }

    fn tick(&mut self) {
        for node in &mut self.nodes {
            node.quarantine = node.quarantine.saturating_sub(1);
            node.left = node.left.saturating_sub(1);
            if node.left == 0 {
                node.holder = Who::Nobody;
            }
        }
        let renewals = self.renewals.iter_mut().flatten();
        let asked = renewals.chain(&mut self.attempt).map(|it| &mut it.age);
        let ages = asked.chain([&mut self.believes]).chain(&mut self.granted);
        ages.for_each(|age| *age = TTL.min(*age + 1));
    }

    fn take(&mut self, at: usize, who: Who, in_quarantine: bool) -> bool {
        let node = &mut self.nodes[at];
        let free = node.holder == Who::Nobody && (node.quarantine == 0 || in_quarantine);
        if free || node.holder == who {
            node.holder = who;
            node.left = TTL;
        }
        node.holder == who
    }

    fn renewed(&mut self, rule: Rule, which: usize, at: usize) {
        let held = self.nodes[at].holder == Who::A;
        if held {
            self.nodes[at].left = TTL;
        }
        let Some(asked) = &mut self.renewals[which] else {
            return;
        };
        asked.nodes[at] = if held { Request::Yes } else { Request::No };
        if asked.is_majority() {
            // A late reply proves nothing.
            if self.believes < TTL {
                let from_reply = rule == Rule::CountsFromReply;
                let age = if from_reply { 0 } else { asked.age };
                self.believes = self.believes.min(age);
            }
            for (repair, reply) in self.repairs.iter_mut().zip(asked.nodes) {
                *repair |= reply == Request::No;
            }
        }
    }

    fn attempted(&mut self, rule: Rule, at: usize) {
        let taken = self.take(at, Who::B, rule == Rule::GrantsInQuarantine);
        let Some(asked) = &mut self.attempt else {
            return;
        };
        asked.nodes[at] = if taken { Request::Yes } else { Request::No };
        if asked.is_majority() {
            self.granted.get_or_insert(asked.age);
        }
    }

    fn next(&self, rule: Rule, found: &mut Vec<Self>) {
        // One of them cannot believe any more.
        let over = |asked: Asked| asked.age == TTL || asked.refused() >= crate::majority(NODES);
        if self.believes == TTL || self.attempt.is_some_and(over) {
            return;
        }
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut state = self.clone();
            change(&mut state);
            found.push(state);
        };
        with(&Self::tick);
        if self.attempt.is_none() {
            with(&|state| state.attempt = Some(Asked::NOW));
        }
        let unsent = self.renewals.iter().position(Option::is_none);
        if let Some(which) = unsent.filter(|_| self.believes < TTL) {
            with(&|state| state.renewals[which] = Some(Asked::NOW));
        }
        for at in 0..NODES {
            // The last one is as the first.
            if !self.wiped && at < NODES - 1 {
                with(&|state| {
                    state.wiped = true;
                    state.nodes[at] = Node {
                        quarantine: TTL,
                        ..Node::default()
                    };
                });
            }
            let out =
                |asked: &Option<Asked>| asked.is_some_and(|it| it.nodes[at] == Request::OnItsWay);
            for which in [0, 1].into_iter().filter(|it| out(&self.renewals[*it])) {
                with(&|state| state.renewed(rule, which, at));
            }
            if self.repairs[at] {
                let anyway = rule == Rule::RepairsInQuarantine;
                with(&|state| _ = state.take(at, Who::A, anyway));
            }
            if out(&self.attempt) {
                with(&|state| state.attempted(rule, at));
            }
        }
    }
}

fn searched(rule: Rule) -> Result<usize, usize> {
    let first = State::first();
    search(first, |state, found| state.next(rule, found), State::is_bad)
}

#[test]
fn one_client_believes() {
    let states = searched(Rule::Right);
    println!("{states:?} states");
    assert!(states.is_ok_and(|states| states > 100_000), "{states:?}");
}

#[test]
fn broken_rules_of_leases_are_found() {
    for rule in [
        Rule::RepairsInQuarantine,
        Rule::GrantsInQuarantine,
        Rule::CountsFromReply,
    ] {
        let steps = searched(rule).expect_err("nothing was found");
        println!("{rule:?}: {steps} steps");
    }
}
