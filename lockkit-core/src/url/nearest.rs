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

/// How many letters must be put in, left out, replaced or swapped with their neighbour to come from
/// one word to the other.
fn distance(one: &str, two: &str) -> usize {
    let (one, two): (Vec<char>, Vec<char>) = (one.chars().collect(), two.chars().collect());
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=two.len()).collect();
    for i in 0..one.len() {
        let mut row = vec![i + 1];
        for j in 0..two.len() {
            let replaced = above[j] + usize::from(one[i] != two[j]);
            let mut best = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && one[i] == two[j - 1] && one[i - 1] == two[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[two.len()]
}
