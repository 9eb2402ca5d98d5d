//! Instants of both records: of one clock, as one machine writes both. Pure.

use jiff::Timestamp;

/// Microseconds since 1970: what the audit log has. The driver's record has more digits, which are cut off in the same way; so what came
/// first does not come last.
pub(super) type Time = i64;

/// One second.
pub(super) const SECOND: Time = 1_000_000;

/// Reads an instant.
pub(super) fn parse(text: &str) -> Result<Time, String> {
    let at: Timestamp = text.parse().map_err(|error| format!("{text:?} is no instant: {error}"))?;
    Ok(at.as_microsecond())
}

/// An instant for people.
pub(super) fn words(at: Time) -> String {
    let text = Timestamp::from_microsecond(at).map(|at| format!("{at:.6}")).unwrap_or_default();
    text.rsplit('T').next().unwrap_or_default().trim_end_matches('Z').to_owned()
}
