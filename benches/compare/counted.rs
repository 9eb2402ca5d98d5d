//! Who has sent which request, by what the API server tells of itself.

use std::collections::BTreeMap;

/// How many requests there were, by verb and resource, and by code where they failed.
pub(crate) type Requests = BTreeMap<String, f64>;

/// The metric of requests.
const REQUESTS: &str = "apiserver_request_total{";
/// The metric of watches, among others that last.
const LASTING: &str = "apiserver_longrunning_requests{";

/// Everyone's requests about these resources, watches excepted.
pub(crate) fn requests(metrics: &str, resources: &[&str]) -> Requests {
    let mut counted = Requests::new();
    for (labels, value) in samples(metrics, REQUESTS) {
        let label = |name: &str| labels.get(name).copied().unwrap_or_default();
        if label("verb") == "WATCH" || !resources.contains(&label("resource")) {
            continue;
        }
        let sub = if label("subresource").is_empty() { String::new() } else { format!("/{}", label("subresource")) };
        let key = format!("{} {}{sub}", label("verb"), label("resource"));
        let key = if label("code") < "300" { key } else { failed(&key, label("code")) };
        *counted.entry(key).or_default() += value;
    }
    counted
}

/// What is left of everyone's requests without our own.
pub(crate) fn others(mut everyone: Requests, own: &Requests) -> Requests {
    for (key, count) in &mut everyone {
        *count -= own.get(key).copied().unwrap_or_default();
    }
    everyone
}

/// What came since, where anything did.
pub(crate) fn since(now: Requests, before: &Requests) -> Requests {
    let more = now.into_iter().map(|(key, count)| {
        let earlier = before.get(&key).copied().unwrap_or_default();
        (key, count - earlier)
    });
    more.filter(|(_, more)| *more > 0.0).collect()
}

/// Whether a request changes an object or tries to. Events are no objects of this kind.
pub(crate) fn is_write(request: &str) -> bool {
    let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
    !["GET", "LIST"].contains(&verb) && !rest.starts_with("events")
}

/// Whether a request has met somebody else's write.
pub(crate) fn is_conflict(request: &str) -> bool {
    request.ends_with(&failed("", 409))
}

/// How many watches are open.
pub(crate) fn watches(metrics: &str) -> f64 {
    samples(metrics, LASTING).filter(|(labels, _)| labels.get("verb") == Some(&"WATCH")).map(|(_, count)| count).sum()
}

/// A request as the metric tells it: its verb, the URL of the collection, and the subresource with its `/`.
pub(crate) fn key(verb: &str, collection: &str, sub: &str) -> String {
    let resource = collection.rsplit('/').next().unwrap_or_default();
    format!("{verb} {resource}{sub}")
}

/// The same, where it failed.
pub(crate) fn failed(key: &str, code: impl std::fmt::Display) -> String {
    format!("{key} → {code}")
}

/// Labels and values of a metric in Prometheus' text. No label that we read has an escape in it.
fn samples<'a>(metrics: &'a str, start: &'a str) -> impl Iterator<Item = (BTreeMap<&'a str, &'a str>, f64)> {
    metrics.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(start)?.rsplit_once("} ")?;
        let pairs = labels.split("\",").filter_map(|pair| pair.trim_end_matches('"').split_once("=\""));
        Some((pairs.collect(), value.trim().parse().ok()?))
    })
}
