//! How failures are reported: which are new, and how many warnings an outage causes. These decisions affect only
//! reports.

pub use crate::process::FailureLog;

/// An error text without the IDs that drivers put into it. Two texts that differ only in IDs are the same failure. An
/// ID is a run of eight or more hexadecimal digits and dashes that contains a digit.
pub fn gist(text: &str) -> String {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_id = |word: &str| {
        word.len() >= 8
            && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
            && word.contains(|c: char| c.is_ascii_digit())
    };
    let mut gist = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        gist.push_str(if is_id(word) { "…" } else { word });
        let mut others = after.chars();
        gist.extend(others.next());
        rest = others.as_str();
    }
    gist
}

/// Logs a failed attempt: as a warning if [`FailureLog`] allows it, otherwise at level debug. What fails in an outage of
/// the API is no news: the outage has lines of its own.
///
/// With a [`Run`](crate::roles::kit::Run) in place of log and time, the line has the number of the attempt, too.
macro_rules! log_failure {
    ($run:expr, $error:expr, { $($field:tt)* }, $text:literal) => {
        log_failure!($run.failures, $run.now, $error, { $($field)* attempt = $run.failed_before + 1, }, $text)
    };
    ($log:expr, $now:expr, $error:expr, { $($field:tt)* }, $text:literal) => {{
        let error = $error;
        let warns = if error.is_of_outage() { None } else { $log.warns(&error.gist(), $now) };
        match warns {
            Some(0) => ::tracing::warn!($($field)* error = error.message(), $text),
            Some(left_out) => ::tracing::warn!($($field)* error = error.message(), left_out, $text),
            None => ::tracing::debug!($($field)* error = error.message(), $text),
        }
    }};
}

pub(crate) use log_failure;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_requests_are_no_news_and_everything_else_is() {
        let said = |id: &str, what: &str| format!("rpc error: {what}: RequestID: {id}, pool \"gold\" (7 of 12 GiB)");
        let full = |id: &str| gist(&said(id, "full"));
        assert_eq!(full("3f2b1c0a-02e4-4a55-9d7b-1c2b3a495867"), full("0a0b0c0d-02e4-4a55-9d7b-1c2b3a495867"));
        assert_eq!(full("deadbeef01"), full("0123456789"));
        assert_ne!(full("0123456789"), gist(&said("0123456789", "denied")));
        // What is short, or a word, stays.
        for text in ["node n1 is down", "facade-deed", "vol-1 of 12", "2 of 3", "größer als 5", "", "decade"] {
            assert_eq!(gist(text), text);
        }
        assert_eq!(gist("12345678"), "…");
    }
}
