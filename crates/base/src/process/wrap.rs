//! Text in lines that fit a terminal. Pure.

/// How wide the lines are that people read.
pub const WIDTH: usize = 100;

/// The words of a text in lines of at most [`WIDTH`] characters. The first line begins with `first`, the others with `next`. A longer
/// word is not broken.
pub fn wrap(first: &str, next: &str, text: &str) -> String {
    let (mut lines, mut width) = (first.to_owned(), first.chars().count());
    let mut is_begun = false;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if is_begun && width + 1 + length > WIDTH {
            lines.push('\n');
            lines.push_str(next);
            width = next.chars().count();
        } else if is_begun {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
        is_begun = true;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_lost_and_no_line_is_too_long() {
        let long = "x".repeat(WIDTH);
        let text = format!("{long} {}", "word ".repeat(60));
        let wrapped = wrap("right  ", "       ", &text);
        assert!(wrapped.split_whitespace().skip(1).eq(text.split_whitespace()));
        assert!(
            wrapped.starts_with(&format!("right  {long}\n       word")) && wrapped.ends_with("word\n"),
            "{wrapped}"
        );
        let widths = wrapped.lines().skip(1).map(|line| line.chars().count());
        assert_eq!(widths.clone().max(), Some(96), "18 words of four letters behind seven columns: {wrapped}");
        assert_eq!(wrap("a ", "  ", ""), "a \n");
    }
}
