//! "Did you mean": the word that was probably wished.

/// The word of `known` that `given` is a misspelling of: at most two letters away, and no more than
/// a third of its length.
pub(super) fn nearest<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let given = given.to_ascii_lowercase();
    known
        .into_iter()
        .map(|word| (distance(&given, word), word))
        .filter(|(distance, word)| *distance <= 2 && distance * 3 <= word.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// How many letters must be put in, left out or replaced to come from one word to the other.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, other) in two.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[two.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_misspellings_and_leaves_other_words_alone() {
        let known = ["ttl", "prefix", "timeout", "poll"];
        for (given, word) in [
            ("tll", Some("ttl")),
            ("tt", Some("ttl")),
            ("TTL", Some("ttl")),
            ("prefx", Some("prefix")),
            ("timeouts", Some("timeout")),
            ("pol", Some("poll")),
            ("password", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), word, "{given}");
        }
    }
}
