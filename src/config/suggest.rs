//! What a mistyped key was probably meant to be.

/// The candidate nearest to `word`, if one is near enough to be worth naming.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = plain(word);
    candidates
        .map(|candidate| (distance(&plain, &self::plain(candidate)), candidate))
        // Of a candidate with one letter any other letter is one slip away.
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len() / 3) && *distance < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

/// Whether two words differ in nothing but what people mix up.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

/// Without what people mix up: case and word separators.
fn plain(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).take(64).collect()
}

/// Insertions, deletions, substitutions, and swaps of neighbours that lead from one word to the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(from != to)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *to && *from == b[j - 1] {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let keys = ["leaseDuration", "renewDeadline", "retryPeriod", "enabled", "namespace", "labels"];
        for (word, meant) in [
            ("leaseduration", Some("leaseDuration")),
            ("lease_duration", Some("leaseDuration")),
            ("lease-duration", Some("leaseDuration")),
            ("leeseDuration", Some("leaseDuration")),
            ("enabeld", Some("enabled")),
            ("enable", Some("enabled")),
            ("lable", Some("labels")),
            ("identity", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys.into_iter()), meant, "{word}");
        }
        assert_eq!((nearest("x", ["v"].into_iter()), nearest("V", ["v"].into_iter())), (None, Some("v")));
    }
}
