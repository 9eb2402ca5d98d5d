//! A point in time as an object's metadata carries it: to the second, in eight bytes also where there may be none. Pure.

use std::num::NonZeroI64;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

/// A second. Kubernetes stamps objects no finer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(NonZeroI64);

impl Moment {
    /// The second in which `time` is. The first second of 1970, which no server stamps, is held as the least number.
    pub fn of(time: Timestamp) -> Self {
        Self::of_seconds(time.as_second())
    }

    /// The second with this number since 1970.
    pub(super) fn of_seconds(seconds: i64) -> Self {
        Self(NonZeroI64::new(seconds).unwrap_or(NonZeroI64::MIN))
    }

    /// Its number since 1970.
    pub(super) fn seconds(self) -> i64 {
        self.0.get()
    }

    /// Its beginning.
    pub fn timestamp(self) -> Timestamp {
        // The least number is out of reach of a timestamp, and so becomes what it stands for.
        Timestamp::from_second(self.0.get()).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Time::deserialize(from).map(|time| Self::of(time.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_moment_is_the_second_that_the_server_wrote() {
        for text in ["2026-01-02T03:04:05Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", "1969-12-31T23:59:59Z"] {
            let moment: Moment = serde_json::from_value(json!(text)).unwrap();
            assert_eq!(moment.timestamp().to_string(), text);
        }
        let of = |text: &str| serde_json::from_value::<Moment>(json!(text)).unwrap();
        assert!(of("2026-01-01T00:00:00Z") < of("2026-01-01T00:00:01Z"));
        assert!(serde_json::from_value::<Moment>(json!("yesterday")).is_err());
        assert_eq!(size_of::<Option<Moment>>(), 8, "twice in each object");
    }
}
