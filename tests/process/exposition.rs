//! A parser of Prometheus' text format, as strict as Prometheus.

use std::collections::BTreeMap;

/// Names and values, in the order of the text.
type Labels = Vec<(String, String)>;

/// One metric family.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// `counter`, `gauge`, `histogram`; Go's runtime has a `summary`, too.
    pub(crate) kind: String,
    /// The help text.
    pub(crate) help: String,
    /// Its series.
    pub(crate) samples: Vec<Sample>,
}

/// One line with a value.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The name, with the suffix of a histogram's parts.
    pub(crate) name: String,
    /// The labels, in their order.
    pub(crate) labels: Labels,
    /// The value.
    pub(crate) value: f64,
}

impl Sample {
    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// Reads an answer of `/metrics`; panics where Prometheus would refuse it.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    assert!(text.ends_with('\n'), "the last line must end");
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("# ") {
            let (what, rest) = comment.split_once(' ').unwrap();
            let (name, told) = rest.split_once(' ').unwrap();
            let family = families.entry(name.to_owned()).or_default();
            let slot = if what == "HELP" { &mut family.help } else { &mut family.kind };
            assert!(what == "HELP" || what == "TYPE", "{line}");
            assert!(slot.is_empty(), "told twice: {line}");
            told.clone_into(slot);
            continue;
        }
        let sample = sample(line);
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| sample.name.strip_suffix(suffix));
        let has_parts = |family: &Family| ["histogram", "summary"].contains(&&*family.kind);
        let base = base.filter(|base| families.get(*base).is_some_and(has_parts));
        let name = base.unwrap_or(&sample.name).to_owned();
        let family = families.get_mut(&name).unwrap_or_else(|| panic!("no TYPE before {line}"));
        assert!(!family.kind.is_empty(), "no TYPE before {line}");
        let known = family.samples.iter().any(|other| (&other.name, &other.labels) == (&sample.name, &sample.labels));
        assert!(!known, "the same series twice: {line}");
        family.samples.push(sample);
    }
    for (name, family) in families.iter().filter(|(_, family)| family.kind == "histogram") {
        check_histogram(name, family);
    }
    families
}

fn sample(line: &str) -> Sample {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').unwrap_or_else(|| panic!("{line}"))),
        None => (series, ""),
    };
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        assert!(is_name(label), "{line}");
        let mut escaped = false;
        let end = quoted.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = end.unwrap_or_else(|| panic!("{line}"));
        labels.push((label.to_owned(), quoted[..end].to_owned()));
        rest = quoted[end + 1..].trim_start_matches(',');
    }
    Sample { name: name.to_owned(), labels, value: value.parse().unwrap_or_else(|_| panic!("{line}")) }
}

/// Buckets rise, end with `+Inf`, and the last is the count.
fn check_histogram(name: &str, family: &Family) {
    let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    let of = |suffix: &str| {
        let name = format!("{name}{suffix}");
        family.samples.iter().filter(move |sample| sample.name == name)
    };
    for sample in of("_bucket") {
        let labels = sample.labels.iter().filter(|(label, _)| label != "le").cloned().collect();
        let bound = sample.label("le").unwrap().replace("+Inf", "inf").parse().unwrap();
        series.entry(labels).or_default().push((bound, sample.value));
    }
    for (labels, buckets) in &series {
        let rise = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(buckets.windows(2).all(rise), "{name} {labels:?} {buckets:?}");
        let (bound, total) = *buckets.last().unwrap();
        let count = of("_count").find(|sample| &sample.labels == labels).map(|sample| sample.value);
        assert!(bound.is_infinite() && count == Some(total), "{name} {labels:?}");
    }
    assert_eq!(of("_count").count(), series.len(), "{name}");
    assert_eq!(of("_sum").count(), series.len(), "{name}");
}
