//! Tables of replies and what they mean.

use super::*;

fn error(outcome: Outcome) -> BackendError {
    BackendError::new(BACKEND, "attempt", outcome, "why")
}

/// A digit: it holds with this token, 0: with none; b: busy; u, i, r: fails; -: no reply yet.
fn votes(text: &str) -> Votes {
    let vote = |letter| match letter {
        '-' => None,
        'b' => Some(Vote::Busy),
        'u' => Some(Vote::Failed(error(Outcome::Unavailable))),
        'i' => Some(Vote::Failed(error(Outcome::Indeterminate))),
        'r' => Some(Vote::Failed(error(Outcome::Rejected))),
        digit => {
            let digit = digit.to_digit(10).map_or(0, u64::from);
            Some(Vote::Own(FencingToken::new(digit)))
        }
    };
    Votes(text.chars().map(vote).collect())
}

fn granted(token: u64) -> Option<Verdict> {
    FencingToken::new(token).map(Verdict::Granted)
}

#[test]
fn attempt_is_decided_as_soon_as_replies_decide() {
    for (replies, expected) in [
        ("-----", None),
        ("77---", None),
        ("777--", granted(7)),
        ("7u7i7", granted(7)),
        ("77777", granted(7)),
        ("770--", Some(Verdict::Raise)),
        ("778--", Some(Verdict::Raise)),
        ("77008", Some(Verdict::Raise)),
        ("77877", granted(7)),
        ("77bb-", None),
        ("7bbb-", Some(Verdict::Held)),
        ("bbb--", Some(Verdict::Held)),
        ("77bbu", Some(Verdict::Held)),
        ("77uub", Some(Verdict::Held)),
        ("77uu-", None),
        ("77uuu", Some(Verdict::Failed)),
        ("uu7i-", Some(Verdict::Failed)),
        ("buibu", Some(Verdict::Failed)),
        ("77-", granted(7)),
        ("7b-", None),
        ("7bb", Some(Verdict::Held)),
        ("bb-", Some(Verdict::Held)),
        ("uu-", Some(Verdict::Failed)),
    ] {
        assert_eq!(votes(replies).verdict(), expected, "{replies}");
    }
}

#[test]
fn silent_nodes_fail_in_the_end() {
    for (replies, expected) in [
        ("77---", Verdict::Failed),
        ("77b--", Verdict::Held),
        ("bb---", Verdict::Failed),
        ("7---7", Verdict::Failed),
        ("7b-", Verdict::Held),
    ] {
        let mut votes = votes(replies);
        assert_eq!(votes.end(), expected, "{replies}");
        assert_eq!(
            votes.error(false).outcome(),
            Outcome::Indeterminate,
            "{replies}"
        );
    }
}

#[test]
fn outcome_of_several_failures_is_true() {
    for (replies, expected) in [
        ("uuu77", Outcome::Unavailable),
        ("uui77", Outcome::Indeterminate),
        ("rrr77", Outcome::Rejected),
        ("rru77", Outcome::Unavailable),
        ("rrrui", Outcome::Rejected),
    ] {
        assert_eq!(votes(replies).error(false).outcome(), expected, "{replies}");
    }
}

/// y: yes, n: no, u: fails.
#[test]
fn majority_says_yes_or_can_no_longer_do_so() {
    for (replies, decided, outcome) in [
        ("yyy", Some(true), None),
        ("yyyuu", Some(true), None),
        ("nnn", Some(false), None),
        ("ynnnu", Some(false), None),
        ("yynn", None, Some(Outcome::Indeterminate)),
        ("yyuuu", None, Some(Outcome::Indeterminate)),
        ("nnuuu", None, Some(Outcome::Unavailable)),
        ("nn", None, Some(Outcome::Indeterminate)),
        ("uuuuu", None, Some(Outcome::Unavailable)),
    ] {
        let mut count = Count::new("release", 5);
        for letter in replies.chars() {
            count.add(match letter {
                'y' => Ok(true),
                'n' => Ok(false),
                _ => Err(error(Outcome::Unavailable)),
            });
        }
        assert_eq!(count.decided(), decided, "{replies}");
        let failed = count.end().err().map(|error| error.outcome());
        assert_eq!(failed, outcome, "{replies}");
    }
}
