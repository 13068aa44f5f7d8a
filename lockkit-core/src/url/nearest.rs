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
        .map(|word| (strsim::osa_distance(&given, word), word))
        .filter(|(distance, word)| *distance <= 2 && distance * 3 <= word.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}
