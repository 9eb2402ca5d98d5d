//! The sum of the resources of the replaced containers, because one process does the work of all of them. Pure.

use serde_yaml::{Mapping, Value};

use super::document::unique;

/// The sum of the containers' resources. A request counts where it is made; a limit only holds if every container has one.
pub(super) fn sum(containers: &[&Value]) -> Option<Value> {
    let mut resources = Mapping::new();
    for (kind, needs_all) in [("requests", false), ("limits", true)] {
        let blocks = containers.iter().filter_map(|container| block(container, kind));
        let names = unique(blocks.flat_map(Mapping::keys).filter_map(Value::as_str));
        let mut sums = Mapping::new();
        for name in names {
            let given: Vec<&Value> =
                containers.iter().filter_map(|container| block(container, kind)?.get(name)).collect();
            let is_whole = !needs_all || given.len() == containers.len();
            if let Some(sum) = add(&given).filter(|_| is_whole) {
                sums.insert(name.into(), sum.into());
            }
        }
        if !sums.is_empty() {
            resources.insert(kind.into(), sums.into());
        }
    }
    (!resources.is_empty()).then(|| resources.into())
}

fn block<'a>(container: &'a Value, kind: &str) -> Option<&'a Mapping> {
    container.get("resources")?.get(kind)?.as_mapping()
}

const UNITS: [(&str, u128); 14] = [
    ("Ei", 1000 << 60),
    ("E", 1_000_000_000_000_000_000_000),
    ("Pi", 1000 << 50),
    ("P", 1_000_000_000_000_000_000),
    ("Ti", 1000 << 40),
    ("Gi", 1000 << 30),
    ("Mi", 1000 << 20),
    ("Ki", 1000 << 10),
    ("T", 1_000_000_000_000_000),
    ("G", 1_000_000_000_000),
    ("M", 1_000_000_000),
    ("k", 1_000_000),
    ("", 1000),
    ("m", 1),
];

/// The sum in the largest unit that one of the summands has and that divides it; `None` if one can't be read.
fn add(given: &[&Value]) -> Option<String> {
    let texts: Vec<String> = given
        .iter()
        .map(|value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let parts: Vec<(u128, u128)> = texts.iter().map(|text| thousandths(text)).collect::<Option<_>>()?;
    let total = parts.iter().try_fold(0_u128, |total, (value, _)| total.checked_add(*value))?;
    let used = |size: u128| size == 1 || parts.iter().any(|(_, unit)| *unit == size);
    let (unit, size) = UNITS.iter().find(|(_, size)| used(*size) && total.is_multiple_of(*size))?;
    Some(format!("{}{unit}", total / size))
}

/// A quantity in thousandths, and the size of its unit.
fn thousandths(text: &str) -> Option<(u128, u128)> {
    // Every text ends with no unit at all: the others are tried first.
    let unit = UNITS.iter().filter(|(unit, _)| !unit.is_empty()).find(|(unit, _)| text.ends_with(unit));
    let (unit, size) = unit.copied().unwrap_or(("", 1000));
    let number = text.strip_suffix(unit)?;
    // `1e9` and `1E9`: the exponent takes the unit's place, and the sum is told without either.
    let (number, size) = match number.split_once(['e', 'E']) {
        Some((number, exponent)) if unit.is_empty() => {
            (number, size.checked_mul(10_u128.checked_pow(exponent.parse().ok()?)?)?)
        }
        Some(_) => return None,
        None => (number, size),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 {
        return None;
    }
    let mut value = whole.parse::<u128>().ok()?.checked_mul(size)?;
    if !fraction.is_empty() {
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        value = value.checked_add((fraction.parse::<u128>().ok()?.checked_mul(size)?).div_ceil(scale))?;
    }
    Some((value, if UNITS.iter().any(|(_, unit)| *unit == size) { size } else { 1000 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_add_up() {
        for (given, sum) in [
            (&["10m", "10m"][..], Some("20m")),
            (&["20Mi", "20Mi"], Some("40Mi")),
            (&["500m", "1"], Some("1500m")),
            (&["512Mi", "1Gi"], Some("1536Mi")),
            (&["0.5", "0.5"], Some("1")),
            (&["1e3"], Some("1k")),
            (&["1e9", "1G"], Some("2G")),
            (&["15e2", "0.5"], Some("1500500m")),
            (&["1P", "1E"], Some("1001P")),
            (&["2E"], Some("2E")),
            (&["1Ei", "1Pi"], Some("1025Pi")),
            (&["1e40"], None),
            (&["1e3k"], None),
            (&["lots"], None),
        ] {
            let values: Vec<Value> = given.iter().map(|&text| text.into()).collect();
            assert_eq!(add(&values.iter().collect::<Vec<_>>()).as_deref(), sum, "{given:?}");
        }
    }

    #[test]
    fn a_container_without_a_limit_lifts_the_limit() {
        let one: Value =
            serde_yaml::from_str("{resources: {requests: {cpu: 10m}, limits: {memory: 1Gi, cpu: 1}}}").unwrap();
        let two: Value = serde_yaml::from_str("{resources: {limits: {memory: 1Gi}}}").unwrap();
        let sum = sum(&[&one, &two]).unwrap();
        let expected: Value = serde_yaml::from_str("{requests: {cpu: 10m}, limits: {memory: 2Gi}}").unwrap();
        assert_eq!(sum, expected);
        assert_eq!(super::sum(&[&Value::Null]), None);
    }
}
