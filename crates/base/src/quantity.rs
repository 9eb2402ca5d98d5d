//! Kubernetes quantities as bytes, exactly. Pure: text in, text out.
//!
//! The grammar is that of `resource.Quantity`: an optional sign, digits with an optional point, and one suffix.
//!
//! | suffix | stands for |
//! |---|---|
//! | `n` `u` `m`, none, `k` `M` `G` `T` `P` `E` | powers of 1000, from 10⁻⁹ |
//! | `Ki` `Mi` `Gi` `Ti` `Pi` `Ei` | powers of 1024 |
//! | `e3` `E3` `e+3` `e-3` | powers of ten |
//!
//! A part of a byte rounds up to a whole byte, because a claim must get at least the requested size. A size that does
//! not fit into an `i64` is an error, where Go uses the largest number: a claim for 9 Ei is a typing error and must not
//! be provisioned. There is no floating point, and the number of digits is limited.

use std::cmp::Ordering;

use thiserror::Error;

/// Why a text is not a size in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// Not a number with one of the suffixes.
    #[error("\"{0}\" is not a quantity: expected a number with an optional suffix, such as 10Gi, 1500M or 1e9")]
    Malformed(String),
    /// Below zero.
    #[error("quantity \"{0}\" is negative: a size in bytes is needed")]
    Negative(String),
    /// More bytes than an `i64` can hold.
    #[error("quantity \"{0}\" is too large: the most is 9223372036854775807 bytes, just below 8Ei")]
    Overflow(String),
}

/// What a suffix multiplies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Ten to this power.
    Ten(i64),
    /// Two to this power, from 10 to 60.
    Two(u32),
}

/// The suffixes of multiples of 1024, in their order.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// More digits than `i64::MAX` has are too many, whatever they are.
const MOST_DIGITS: usize = 19;

/// The bytes that a quantity stands for, rounded up.
///
/// ```
/// use csi_control_plane_base::quantity::bytes;
///
/// assert_eq!(bytes("10Gi"), Ok(10_737_418_240));
/// assert_eq!(bytes("1500m"), Ok(2));
/// ```
pub fn bytes(text: &str) -> Result<i64, QuantityError> {
    let malformed = || QuantityError::Malformed(text.to_owned());
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.contains('.') || (whole.is_empty() && part.is_empty()) {
        return Err(malformed());
    }
    let scale = scale_of(suffix).ok_or_else(malformed)?;
    let whole = whole.trim_start_matches('0');
    let part = part.trim_end_matches('0');
    if whole.is_empty() && part.is_empty() {
        return Ok(0);
    }
    if text.starts_with('-') {
        return Err(QuantityError::Negative(text.to_owned()));
    }
    let size = match scale {
        Scale::Ten(power) => in_tens(whole, part, power),
        Scale::Two(power) => in_twos(whole, part, power),
    };
    size.and_then(|size| i64::try_from(size).ok()).ok_or_else(|| QuantityError::Overflow(text.to_owned()))
}

/// A size as Kubernetes writes it: with the largest suffix of 1024 that is exact. Negative sizes, which do not occur,
/// are written without suffix.
pub fn format_bytes(bytes: i64) -> String {
    let mut rest = bytes;
    let mut suffix = "";
    for larger in BINARY {
        if rest == 0 || rest % 1024 != 0 {
            break;
        }
        rest /= 1024;
        suffix = larger;
    }
    format!("{rest}{suffix}")
}

fn scale_of(suffix: &str) -> Option<Scale> {
    if let Some(at) = BINARY.iter().position(|binary| *binary == suffix) {
        return u32::try_from(at).ok().map(|at| Scale::Two((at + 1) * 10));
    }
    let power = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => return exponent(suffix),
    };
    Some(Scale::Ten(power))
}

/// `e3`, `E-3`. An exponent with too many digits counts as the largest possible one.
fn exponent(suffix: &str) -> Option<Scale> {
    let signed = suffix.strip_prefix(['e', 'E'])?;
    let digits = signed.strip_prefix(['+', '-']).unwrap_or(signed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse::<i64>().unwrap_or(i64::MAX);
    Some(Scale::Ten(if signed.starts_with('-') { -size } else { size }))
}

/// `whole.part` × 10^power, rounded up; `None` if it is too large. The point moves; nothing is multiplied.
fn in_tens(whole: &str, part: &str, power: i64) -> Option<u128> {
    let digits = [whole, part].concat();
    // Where the point stands after it moved, counted from the first digit that is not zero.
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    let digits = &digits[zeros..];
    let before = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()?;
    let before = before.saturating_add(power);
    if before <= 0 {
        return Some(1);
    }
    let before = usize::try_from(before).ok().filter(|before| *before <= MOST_DIGITS)?;
    match digits.len().cmp(&before) {
        Ordering::Less | Ordering::Equal => {
            let zeros = u32::try_from(before - digits.len()).ok()?;
            Some(digits.parse::<u128>().ok()? * 10_u128.pow(zeros))
        }
        Ordering::Greater => {
            let (kept, cut) = digits.split_at(before);
            let up = cut.bytes().any(|digit| digit != b'0');
            Some(kept.parse::<u128>().ok()? + u128::from(up))
        }
    }
}

/// `whole.part` × 2^power, rounded up; `None` if it is too large.
fn in_twos(whole: &str, part: &str, power: u32) -> Option<u128> {
    if whole.len() > MOST_DIGITS {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().ok()? };
    // By hand from the last digit to the first: what is carried over the point is whole, what stays behind it rounds up.
    let (mut carry, mut up) = (0_u128, false);
    for digit in part.bytes().rev() {
        let product = (u128::from(digit - b'0') << power) + carry;
        up |= !product.is_multiple_of(10);
        carry = product / 10;
    }
    Some((whole << power) + carry + u128::from(up))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_suffix_has_its_size() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1),
            ("+1", 1),
            ("-0", 0),
            ("0Ei", 0),
            ("1n", 1),
            ("1000000000n", 1),
            ("1000000001n", 2),
            ("1u", 1),
            ("2000000u", 2),
            ("1m", 1),
            ("1000m", 1),
            ("1001m", 2),
            ("1k", 1_000),
            ("1M", 1_000_000),
            ("1G", 1_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1Ki", 1 << 10),
            ("1Mi", 1 << 20),
            ("1Gi", 1 << 30),
            ("1Ti", 1 << 40),
            ("1Pi", 1 << 50),
            ("1Ei", 1 << 60),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("1e+3", 1_000),
            ("1500e-3", 2),
            ("1e-400", 1),
            ("0e400", 0),
            ("1e-99999999999999999999", 1),
            ("0e99999999999999999999", 0),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn parts_are_exact_and_round_up() {
        for (text, expected) in [
            ("1.5Gi", 1_610_612_736),
            ("0.5Ki", 512),
            ("0.1Ki", 103),
            (".5", 1),
            ("1.", 1),
            ("1.0", 1),
            ("1.000000000000000000000000000000000000001", 2),
            ("1.00000000000000000000000000000000000000000001Ki", 1_025),
            ("0.0009765625Ki", 1),
            ("0.0019531250Ki", 2),
            ("0.001953125000000000000000001Ki", 3),
            ("00012.50k", 12_500),
            ("0.000000000000000001E", 1),
            ("5970004541", 5_970_004_541),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_too_large_is_an_error_and_never_the_largest_number() {
        for text in [
            "8Ei",
            "9223372036854775808",
            "9223372036854775807.1",
            "9223372036854775807001m",
            "10E",
            "1e19",
            "1e99999999999999999999",
            "99999999999999999999999999999999999999999999999999",
            "999999999999999999999999Ki",
            "7.99999999999999999999999999Ei",
        ] {
            assert_eq!(bytes(text), Err(QuantityError::Overflow(text.into())), "{text}");
        }
        for text in
            ["9223372036854775807", "9223372036854775806.1", "9223372036854775807000m", "9007199254740991.999Ki"]
        {
            assert!(bytes(text).is_ok_and(|size| size > i64::MAX - 1024), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_by_its_text() {
        for text in [
            "", " ", "+", "-", ".", "1.2.3", "ten", "1 Gi", "1gi", "1GI", "1K", "1ki", "1Gib", "1e", "e3", "1e3Ki",
            "1e3.5", "1mm", "0x10", "1_000", "١", "1e+", "--1", "1-", "1Mi ", "NaN",
        ] {
            assert_eq!(bytes(text), Err(QuantityError::Malformed(text.into())), "{text}");
        }
        for text in ["-1", "-0.001m", "-1Gi"] {
            assert_eq!(bytes(text), Err(QuantityError::Negative(text.into())), "{text}");
        }
    }

    #[test]
    fn row_45_a_size_is_written_exactly() {
        for (size, expected) in [
            (0, "0"),
            (1, "1"),
            (1_000, "1000"),
            (1_024, "1Ki"),
            (1_536, "1536"),
            (1_572_864, "1536Ki"),
            (1_073_741_824, "1Gi"),
            (5_970_004_541, "5970004541"),
            (1 << 60, "1Ei"),
            (i64::MAX, "9223372036854775807"),
        ] {
            assert_eq!(format_bytes(size), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(size in 0..=i64::MAX, shift in 0_u32..63) {
            prop_assert_eq!(bytes(&format_bytes(size)), Ok(size));
            let round = (size >> shift) << shift;
            prop_assert_eq!(bytes(&format_bytes(round)), Ok(round));
        }

        /// Against plain fractions: `whole` + `part`/10^6 in units of `unit`/10^9 bytes.
        #[test]
        fn any_number_is_its_fraction_rounded_up(whole in 0_u64..100_000, part in 0_u32..1_000_000, unit in 0_usize..15) {
            const NANO: u128 = 1_000_000_000;
            let (suffix, size) = [
                ("n", 1), ("u", 1_000), ("m", 1_000_000), ("", NANO), ("k", NANO * 1_000), ("M", NANO * 1_000_000),
                ("e-2", NANO / 100), ("e5", NANO * 100_000), ("E+7", NANO * 10_000_000),
                ("Ki", NANO << 10), ("Mi", NANO << 20), ("Gi", NANO << 30), ("Ti", NANO << 40), ("G", NANO * NANO), ("T", NANO * NANO * 1_000),
            ][unit];
            let millionths = u128::from(whole) * 1_000_000 + u128::from(part);
            let expected = (millionths * size).div_ceil(NANO * 1_000_000);
            let text = format!("{whole}.{part:06}{suffix}");
            prop_assert_eq!(bytes(&text).ok().map(i128::from), i64::try_from(expected).ok().map(i128::from), "{}", text);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[+-]?[0-9.]{0,30}[eEinumkKMGTP+-]{0,3}[0-9]{0,25}|\\PC{0,12}") {
            if let Ok(size) = bytes(&text) {
                prop_assert!(size >= 0);
            }
        }
    }
}
