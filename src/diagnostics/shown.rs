//! How durations and long texts are shown. Pure.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most bytes of an error that are shown: twice Kubernetes' limit. A driver may send megabytes.
pub(super) const ERROR_SHOWN: usize = 2048;

/// Cuts a longer text between two characters, and marks the cut.
pub(super) fn cut(text: &mut String) {
    if text.len() > ERROR_SHOWN {
        let end = (0..=ERROR_SHOWN).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

/// A size, as Kubernetes writes it: with the largest binary unit, and one decimal where it is not exact.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let Some((place, unit)) = UNITS.iter().enumerate().rev().find(|(place, _)| self.0 >> (10 * (place + 1)) > 0)
        else {
            return write!(f, "{}", self.0);
        };
        let size = 1_u64 << (10 * (place + 1));
        // A tenth is as fine as anyone reads it; rounded down, as nobody may count on more.
        let tenths = u128::from(self.0 % size) * 10 / u128::from(size);
        match tenths {
            0 => write!(f, "{}{unit}", self.0 / size),
            _ => write!(f, "{}.{tenths}{unit}", self.0 / size),
        }
    }
}

/// An amount of time: seconds in JSON. On the page as kubectl and the configuration write it: `12m20s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(pub Duration);

impl Serialize for Age {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Milliseconds are as fine as anyone reads them.
        serializer.serialize_f64((self.0.as_secs_f64() * 1000.0).round() / 1000.0)
    }
}

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map(Self).map_err(serde::de::Error::custom)
    }
}

impl From<Duration> for Age {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 if self.0.subsec_millis() == 0 => f.write_str("0s"),
            0 => write!(f, "{}ms", self.0.subsec_millis()),
            1..10 => write!(f, "{seconds}.{}s", self.0.subsec_millis() / 100),
            10..60 => write!(f, "{seconds}s"),
            60..3600 => write!(f, "{}m{}s", seconds / 60, seconds % 60),
            3600..86_400 => write!(f, "{}h{}m", seconds / 3600, seconds % 3600 / 60),
            _ => write!(f, "{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
        }
    }
}
