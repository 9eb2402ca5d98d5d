//! Log lines on stderr: JSON for machines, text for people, and a level that can change while running.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Level;
use tracing_subscriber::filter::{Directive, EnvFilter, FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::{Layer, Registry, reload};

use super::json::{LineLayer, Style};
use crate::process::Clock;

use super::config::LogFormat;

/// What the log shows and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// A level (`info`), or directives such as `info,csi_control_plane::csi=debug`.
    pub level: String,
    /// Shape of a line.
    pub format: LogFormat,
}

/// Why a log level was refused.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A word that is neither a level nor a directive.
    #[error(
        "`{0}` is neither a level (off, error, warn, info, debug, trace) nor a directive such as `csi_control_plane::csi=debug`"
    )]
    SmolStr(String),
    /// A directive that cannot be parsed.
    #[error("log directive `{directive}` is not understood")]
    Directive {
        /// As written.
        directive: String,
        /// Why.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The log is gone: its subscriber was dropped.
    #[error("the log no longer runs")]
    Gone(#[source] reload::Error),
}

/// Libraries that log every frame and poll at `debug`. They log only from `warn` on, unless the filter names them.
const CHATTY: [&str; 7] = ["h2", "hyper", "hyper_util", "rustls", "tokio_util", "tonic", "tower"];
/// kube logs every failed connection and 5xx at `error`; we log each error once, where it is handled.
const SILENT: &str = "kube_client::client::builder";
/// kube's words about watches that end and answers that it cannot use, at `warn`. Each is an error that it returns, too, so
/// they are for those who look for a fault of kube's: from `debug` on.
const DETAILS: [&str; 2] = ["kube_client", "kube_runtime"];
/// Spans of these targets stay around their events whatever the level is.
const OURS: &str = env!("CARGO_CRATE_NAME");

/// A layer whose kind no longer matters.
pub(super) type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Changes the log's level while the process runs.
#[derive(Clone)]
pub struct LogLevel {
    filter: reload::Handle<EnvFilter, Registry>,
    silent: Arc<AtomicBool>,
}

impl LogLevel {
    /// Sets the filter to `level`. On an error nothing changes.
    pub fn set(&self, level: &str) -> Result<(), LogError> {
        self.filter.reload(parse_level(level)?).map_err(LogError::Gone)?;
        self.silent.store(is_off(level), Ordering::Release);
        Ok(())
    }

    /// Whether the log is off, so that errors must be reported elsewhere.
    pub fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogLevel")
    }
}

/// Parses a level or a list of directives, on top of our defaults for chatty libraries.
///
/// `EnvFilter` takes any single word for the name of a module and shows that module alone, so that `level: inof` would
/// silence the log. Here a lone word is a level or an error.
pub fn parse_level(level: &str) -> Result<EnvFilter, LogError> {
    let mut base = LevelFilter::ERROR;
    let mut asked: Vec<Directive> = Vec::new();
    for word in level.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if !word.contains(['=', ':', '[']) {
            base = word.parse().map_err(|_| LogError::SmolStr(word.to_owned()))?;
            continue;
        }
        let directive = word.parse().map_err(|source| LogError::Directive { directive: word.to_owned(), source })?;
        asked.push(directive);
    }
    if level.trim().is_empty() {
        return Err(LogError::SmolStr(level.to_owned()));
    }
    let defaults = CHATTY.iter().map(|target| format!("{target}={}", base.min(LevelFilter::WARN)));
    let details = DETAILS.iter().filter(|_| base < LevelFilter::DEBUG).map(|target| format!("{target}=off"));
    let defaults =
        defaults.chain(details).chain([format!("{SILENT}=off")]).filter_map(|directive| directive.parse().ok());
    let mut filter = EnvFilter::default().add_directive(base.into());
    for directive in defaults.chain(asked) {
        filter = filter.add_directive(directive);
    }
    Ok(filter)
}

/// The log as a layer, and the handle of its level.
pub(super) fn layer<W>(
    settings: &LogSettings,
    clock: Clock,
    ansi: bool,
    writer: W,
) -> Result<(BoxedLayer, LogLevel), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(parse_level(&settings.level)?);
    // An error needs the context of its volume: our spans stay on even if only errors are shown.
    let spans =
        filter_fn(|metadata| metadata.is_span() && *metadata.level() <= Level::INFO && is_ours(metadata.target()))
            .with_max_level_hint(LevelFilter::INFO);
    let filter = filter.or(spans);
    let style = match settings.format {
        LogFormat::Json => Style::Json,
        LogFormat::Text => Style::Text { ansi },
    };
    let layer: BoxedLayer = LineLayer::new(writer, clock, style).with_filter(filter).boxed();
    let silent = Arc::new(AtomicBool::new(is_off(&settings.level)));
    Ok((layer, LogLevel { filter: handle, silent }))
}

fn is_off(level: &str) -> bool {
    level.trim().eq_ignore_ascii_case("off")
}

/// Whether a target is a module of this crate.
pub(super) fn is_ours(target: &str) -> bool {
    target.strip_prefix(OURS).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
#[path = "logs_tests.rs"]
mod tests;
