//! An error with all its causes on one line.

use std::error::Error;
use std::fmt;

/// Displays an error followed by each of its sources: `cannot read the lease: request timed out`.
///
/// Our errors never repeat their source in their own text. Some libraries' errors do: a cause that is already in the
/// text is left out.
#[derive(Debug, Clone, Copy)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        let mut source = self.0.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !told.contains(&text) {
                told.push_str(": ");
                told.push_str(&text);
            }
            source = cause.source();
        }
        f.write_str(&told)
    }
}

/// The error and its causes as one owned line, for where a status or an event keeps it.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    ErrorChain(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot renew")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_chain_names_every_cause_once() {
        let error = Outer(std::io::Error::other("connection reset"));
        assert_eq!(error_chain(&error), "cannot renew: connection reset");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open 'x' ({0})")]
    struct Repeats(#[source] std::io::Error);

    #[test]
    fn a_cause_that_its_error_has_told_already_is_not_told_again() {
        let error = Repeats(std::io::Error::other("no such file"));
        assert_eq!(error_chain(&error), "cannot open 'x' (no such file)");
    }
}
