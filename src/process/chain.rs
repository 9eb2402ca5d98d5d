//! An error with all its causes on one line.

use std::error::Error;
use std::fmt;

/// Displays an error followed by each of its sources: `cannot read the lease: request timed out`.
///
/// Our errors never repeat their source in their own text, so nothing is said twice.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// The error and its causes as one owned line, for where a status or an event keeps it.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    Chain(error).to_string()
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
        assert_eq!(chain(&error), "cannot renew: connection reset");
    }
}
