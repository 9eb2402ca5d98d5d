//! What a plain scalar means in YAML 1.1, as the reader of kubectl (go.yaml.in/yaml/v2) resolves it. Pure.

use serde_yaml::{Number, Value};

/// The value of a scalar without quotes and without a tag.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return true.into(),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return false.into(),
        ".nan" | ".NaN" | ".NAN" => return f64::NAN.into(),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return f64::INFINITY.into(),
        "-.inf" | "-.Inf" | "-.INF" => return f64::NEG_INFINITY.into(),
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'.' => float(text),
        // A date stays a text, as in kubectl. It is no number either.
        b'+' | b'-' | b'0'..=b'9' => {
            let plain = text.replace('_', "");
            integer(&plain).or_else(|| float(&plain)).or_else(|| signed_binary(&plain))
        }
        _ => None,
    };
    number.map_or_else(|| text.into(), Value::Number)
}

/// Go's `ParseInt` and `ParseUint` with base 0, for 64 bits.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let is_signed = digits.len() < text.len();
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // Rust takes a sign here too.
    if !digits.starts_with(|digit: char| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let size = u64::from_str_radix(digits, base).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(size).map(Number::from);
    }
    (!is_signed || i64::try_from(size).is_ok()).then(|| size.into())
}

/// `0b-1`: the reader takes the prefix away and then allows a sign.
fn signed_binary(text: &str) -> Option<Number> {
    i64::from_str_radix(text.strip_prefix("0b")?, 2).ok().map(Number::from)
}

/// Digits with a point and an exponent, no more than fits.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some((whole, part)) => is_digits(whole) && is_digits(part) && !(whole.is_empty() && part.is_empty()),
        None => !mantissa.is_empty() && is_digits(mantissa),
    };
    let is_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    let value: f64 = (is_mantissa && is_exponent).then(|| text.parse().ok()).flatten()?;
    value.is_finite().then(|| in_json(value))
}

/// A number as its JSON says it: whole ones are integers there.
fn in_json(value: f64) -> Number {
    format!("{value:.0}")
        .parse::<i64>()
        .ok()
        .filter(|_| value.fract() == 0.0)
        .map_or_else(|| value.into(), Number::from)
}

/// Whether some reader of YAML 1.1 or 1.2 would take this text, without quotes, for something else than a text. It is generous:
/// whatever has the letters of a number, a time or a date, and begins like one.
pub(super) fn is_ambiguous(text: &str) -> bool {
    const WORDS: [&str; 20] = [
        "", "y", "yes", "n", "no", "true", "false", "on", "off", "null", "~", "=", "<<", ".nan", ".inf", "+.inf",
        "-.inf", "nan", "inf", "none",
    ];
    let begins_as_number = text.trim_start_matches(['+', '-', '.']).starts_with(|first: char| first.is_ascii_digit());
    let has_letters_of_one = |c: char| c.is_ascii_hexdigit() || "_xXoO.:+-TtZz ".contains(c);
    WORDS.contains(&text.to_ascii_lowercase().as_str())
        || (begins_as_number && text.chars().all(has_letters_of_one))
        || !resolve(text).is_string()
}
