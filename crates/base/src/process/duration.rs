//! Durations as people write them in the configuration: `15s`, `1m30s`, `1.5h`.
//!
//! The syntax is the one of the Go sidecars' flags, so that a value can be moved from a command line into the file as
//! it is. A number without a unit is refused, because it is ambiguous. The limit of one year keeps every sum of an
//! instant and a duration representable.
//!
//! ```text
//! #[serde(with = "crate::process::duration::Text")]
//! pub timeout: Duration,
//! #[serde(with = "crate::process::duration::OrNull")]
//! pub pause: Option<Duration>,
//! ```

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

use super::section::Faults;

/// The JSON Schema `format` of a duration.
pub const FORMAT: &str = "go-duration";

/// What a duration looks like, for messages.
pub const ALLOWED: &str = "a duration with its unit, such as 15s or 1m30s, up to 8760h";

const LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Units with their nanoseconds, largest first; two-letter units stand before their first letter.
const UNITS: [(&str, u128); 7] = [
    ("h", 3_600_000_000_000),
    ("ms", 1_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// Reads a duration; `None` if the text is none or is longer than a year.
pub fn parse(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return None;
    }
    let mut nanoseconds: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, size) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || whole.len() > 18 || fraction.len() > 9 || number.ends_with('.') {
            return None;
        }
        nanoseconds = nanoseconds.checked_add(whole.parse::<u128>().ok()?.checked_mul(*size)?)?;
        if !fraction.is_empty() {
            let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
            nanoseconds += fraction.parse::<u128>().ok()? * size / scale;
        }
        rest = after.strip_prefix(unit)?;
    }
    let duration = Duration::from_nanos(u64::try_from(nanoseconds).ok()?);
    (duration <= LIMIT).then_some(duration)
}

/// Writes a duration in the form that [`parse`] reads, in the fewest words: `1m30s`, `250ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (unit, size) in [("h", UNITS[0].1), ("m", UNITS[2].1), ("s", UNITS[3].1), ("ms", UNITS[1].1)]
        .into_iter()
        .chain([("us", UNITS[4].1), ("ns", UNITS[6].1)])
    {
        let count = rest / size;
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(unit);
            rest %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reports a deadline in which nothing can be done.
pub fn check_deadline(key: &str, deadline: Option<Duration>, faults: &mut Faults) {
    if deadline.is_some_and(|deadline| deadline.is_zero()) {
        faults.add(key, "0s", "longer than 0s, or null");
    }
}

/// Reports a duration in which nothing can be done, where there has to be one.
pub fn check_some(key: &str, duration: Duration, faults: &mut Faults) {
    if duration.is_zero() {
        faults.add(key, "0s", "longer than 0s");
    }
}

/// Reports a duration that is too short.
pub fn check_at_least(key: &str, duration: Duration, least: Duration, faults: &mut Faults) {
    if duration < least {
        faults.add(key, format(duration), format_args!("at least {}", format(least)));
    }
}

/// Reports a duration that is shorter than the one of another key.
pub fn check_not_below(key: &str, duration: Duration, (other, least): (&str, Duration), faults: &mut Faults) {
    if duration < least {
        faults.add(key, format(duration), format_args!("at least {other}, which is {}", format(least)));
    }
}

fn read<E: Error>(text: &str) -> Result<Duration, E> {
    parse(text).ok_or_else(|| E::custom(format_args!("{text:?} is not {ALLOWED}")))
}

/// A duration as a text, for serde and in a JSON Schema.
#[derive(Debug)]
pub struct Text;

/// The same, or null.
#[derive(Debug)]
pub struct OrNull;

impl Text {
    /// `serialize_with` of a duration.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format(*duration))
    }

    /// `deserialize_with` of a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        read(&String::deserialize(deserializer)?)
    }
}

impl OrNull {
    /// `serialize_with` of a duration that may be null.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(format).serialize(serializer)
    }

    /// `deserialize_with` of a duration that may be null.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Option::<String>::deserialize(deserializer)?.map(|text| read(&text)).transpose()
    }
}

impl JsonSchema for Text {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": FORMAT,
            "pattern": "^([0-9]+(\\.[0-9]+)?(h|m|s|ms|us|µs|ns))+$",
        })
    }
}

impl JsonSchema for OrNull {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Option::<Text>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<Text>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanoseconds) in [
            ("15s", 15_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("250ms", 250_000_000),
            ("1h0m0.5s", 3_600_500_000_000),
            ("3us", 3_000),
            ("3µs", 3_000),
            ("7ns", 7),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn what_leaves_room_for_a_guess_is_refused() {
        for text in
            ["", "15", "15 s", "s", "1.s", ".5s", "-1s", "1d", "1m30", "1..5s", "8761h", "99999999999999999999h", "é"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_written_short() {
        for (seconds, text) in [(90, "1m30s"), (600, "10m"), (3600, "1h"), (0, "0s"), (15, "15s")] {
            assert_eq!(format(Duration::from_secs(seconds)), text);
        }
        assert_eq!(format(Duration::from_millis(1500)), "1s500ms");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn what_is_written_is_read_back(nanoseconds in 0_u64..31_536_000_000_000_000) {
            let duration = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse(&format(duration)), Some(duration));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,20}") {
            let _ = parse(&text);
        }
    }
}
