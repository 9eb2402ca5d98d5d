//! Decides how spans are sent, from the standard `OTEL_*` variables, without I/O.
//!
//! | question | answer; `OTEL_EXPORTER_OTLP_TRACES_X` goes before `OTEL_EXPORTER_OTLP_X` |
//! |---|---|
//! | metadata of each request | `…_HEADERS`: `key=value,…`, percent-encoded. The values are secrets: they are in no log line and in no warning |
//! | deadline of one request | `…_TIMEOUT`, milliseconds: 10 000 |
//! | deadline of a batch, retries included | `OTEL_BSP_EXPORT_TIMEOUT`, milliseconds: 30 000 |
//! | when a batch goes | `OTEL_BSP_SCHEDULE_DELAY` (milliseconds: 5 000) after the last, or when `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` (512) spans wait |
//! | how many spans may wait | `OTEL_BSP_MAX_QUEUE_SIZE`: 2 048. Further ones are dropped and counted |
//! | whom to trust with `https` | `…_CERTIFICATE`, a file with certificates; else the public roots |
//! | who we are with `https` | `…_CLIENT_CERTIFICATE` and `…_CLIENT_KEY`, files |
//! An invalid value causes a warning and is ignored.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, KeyRef, MetadataMap};

use super::variable::{list, percent_decoded};

/// How spans are sent.
#[derive(Debug, Clone)]
pub(super) struct Sending {
    pub(super) headers: Headers,
    pub(super) request_timeout: Duration,
    pub(super) batch_timeout: Duration,
    pub(super) delay: Duration,
    pub(super) queue: usize,
    pub(super) batch: usize,
    pub(super) tls: TlsFiles,
}

/// Metadata with secrets in it: only its keys are ever shown.
#[derive(Clone, Default)]
pub(super) struct Headers(pub(super) MetadataMap);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |key| match key {
            KeyRef::Ascii(key) => key.as_str(),
            KeyRef::Binary(key) => key.as_str(),
        };
        f.debug_set().entries(self.0.keys().map(name)).finish()
    }
}

/// Where certificates and keys are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) roots: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// The standard's defaults.
const REQUEST_TIMEOUT: u64 = 10_000;
const BATCH_TIMEOUT: u64 = 30_000;
const DELAY: u64 = 5_000;
const QUEUE: u64 = 2_048;
const BATCH: u64 = 512;

/// Decides. `var` finds a variable that is set and not empty.
pub(super) fn sending<'a>(var: impl Fn(&str) -> Option<&'a str>, warnings: &mut Vec<String>) -> Sending {
    let of_traces = |name: &str| {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| var(&name).map(|value| (name, value)))
    };
    let batching = |name: &str| var(name).map(|value| (name.to_owned(), value));
    let headers = of_traces("HEADERS").map(|found| headers(found, warnings)).unwrap_or_default();
    let compression = of_traces("COMPRESSION").filter(|(_, how)| !how.eq_ignore_ascii_case("none"));
    if let Some((name, how)) = compression {
        warnings.push(format!("{name}={how} is not supported (none): traces are sent uncompressed"));
    }
    let queue = number(batching("OTEL_BSP_MAX_QUEUE_SIZE"), QUEUE, warnings);
    let wanted = batching("OTEL_BSP_MAX_EXPORT_BATCH_SIZE");
    let batch = number(wanted.clone(), BATCH, warnings).min(queue);
    if let Some((name, value)) = wanted.filter(|(_, value)| value.parse().is_ok_and(|wanted: u64| wanted > queue)) {
        warnings.push(format!("{name}={value} is more than may wait (OTEL_BSP_MAX_QUEUE_SIZE): {queue} applies"));
    }
    let mut milliseconds = |found, default| Duration::from_millis(number(found, default, warnings));
    Sending {
        headers,
        request_timeout: milliseconds(of_traces("TIMEOUT"), REQUEST_TIMEOUT),
        batch_timeout: milliseconds(batching("OTEL_BSP_EXPORT_TIMEOUT"), BATCH_TIMEOUT),
        delay: milliseconds(batching("OTEL_BSP_SCHEDULE_DELAY"), DELAY),
        queue: usize::try_from(queue).unwrap_or(usize::MAX),
        batch: usize::try_from(batch).unwrap_or(usize::MAX),
        tls: TlsFiles {
            roots: of_traces("CERTIFICATE").map(|(_, path)| path.into()),
            certificate: of_traces("CLIENT_CERTIFICATE").map(|(_, path)| path.into()),
            key: of_traces("CLIENT_KEY").map(|(_, path)| path.into()),
        },
    }
}

/// A number above zero. The most is what nobody means: a queue has its room from the start.
fn number(found: Option<(String, &str)>, default: u64, warnings: &mut Vec<String>) -> u64 {
    const MOST: u64 = 10_000_000;
    let Some((name, value)) = found else { return default };
    match value.parse() {
        Ok(number) if (1..=MOST).contains(&number) => number,
        _ => {
            warnings.push(format!("{name}={value} is no number from 1 to {MOST}: {default} applies"));
            default
        }
    }
}

fn headers((name, text): (String, &str), warnings: &mut Vec<String>) -> Headers {
    let mut headers = MetadataMap::new();
    for (position, entry) in list(Some(text)).enumerate() {
        let parsed = entry.split_once('=').and_then(|(key, value)| {
            let key: AsciiMetadataKey = key.trim().to_ascii_lowercase().parse().ok()?;
            let mut value: AsciiMetadataValue = percent_decoded(value.trim()).parse().ok()?;
            value.set_sensitive(true);
            Some((key, value))
        });
        match parsed {
            Some((key, value)) => {
                headers.insert(key, value);
            }
            // Not shown: it may be the secret that the key is missing from.
            None => warnings.push(format!("{name}: entry {} is not key=value, and is left out", position + 1)),
        }
    }
    Headers(headers)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> (Sending, Vec<String>) {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        let mut warnings = Vec::new();
        let sending = sending(|name| variables.get(name).copied(), &mut warnings);
        (sending, warnings)
    }

    #[test]
    fn the_defaults_are_the_standards() {
        let (sending, warnings) = of(&[]);
        assert!(warnings.is_empty() && sending.headers.0.is_empty() && sending.tls == TlsFiles::default());
        let milliseconds =
            [sending.request_timeout, sending.batch_timeout, sending.delay].map(|duration| duration.as_millis());
        assert_eq!((milliseconds, sending.queue, sending.batch), ([10_000, 30_000, 5_000], 2048, 512));
    }

    #[test]
    fn a_variable_of_traces_goes_before_the_one_of_all_signals() {
        let (sending, warnings) = of(&[
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=general"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization=Bearer%20x=y, tenant = t"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/traces.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/cert.pem"),
        ]);
        assert!(warnings.is_empty(), "{warnings:?}");
        let header = |name: &str| sending.headers.0.get(name).and_then(|value| value.to_str().ok());
        assert_eq!((header("authorization"), header("tenant"), header("a")), (Some("Bearer x=y"), Some("t"), None));
        assert_eq!(sending.request_timeout, Duration::from_millis(2500));
        let path = |text: &str| Some(PathBuf::from(text));
        let expected = TlsFiles { roots: path("/traces.pem"), certificate: path("/cert.pem"), key: path("/key.pem") };
        assert_eq!(sending.tls, expected);
    }

    #[test]
    fn batches_are_as_the_variables_say() {
        let (sending, warnings) = of(&[
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "64"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32"),
            ("OTEL_BSP_EXPORT_TIMEOUT", "700"),
        ]);
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!((sending.delay.as_millis(), sending.batch_timeout.as_millis()), (100, 700));
        assert_eq!((sending.queue, sending.batch), (64, 32));
        let (sending, warnings) = of(&[("OTEL_BSP_MAX_QUEUE_SIZE", "64")]);
        assert!((sending.batch, warnings.len()) == (64, 0), "nobody asked for more");
    }

    #[test]
    fn what_is_mistyped_is_a_warning_that_repeats_no_secret() {
        for (name, value, said) in [
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "2048 applies"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5s", "5000 applies"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "99999999999", "10000 applies"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "2048 applies"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "uncompressed"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,hunter2", "entry 2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%0A", "entry 1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=hunter2", "entry 1"),
        ] {
            let (_, warnings) = of(&[(name, value)]);
            assert_eq!(warnings.len(), 1, "{name}={value}: {warnings:?}");
            assert!(warnings[0].contains(said) && warnings[0].contains(name), "{warnings:?}");
            assert!(!warnings[0].contains("hunter2"), "{warnings:?}");
        }
        let (sending, _) = of(&[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hunter2")]);
        assert_eq!(format!("{:?}", sending.headers), "{\"authorization\"}");
    }
}
