//! The verbs. The only place that ends the process, prints, and reads the environment.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use csi_control_plane::app::{self, Environment, Plan};
use csi_control_plane::cli::{self, Command, Exit, Output};
use csi_control_plane::cluster::ClusterAccess;
use csi_control_plane::config::{self, Config, File, Loaded, Sources};
use csi_control_plane::csi::Endpoint;
use csi_control_plane::process::{Clock, Entropy, chain};
use csi_control_plane::roles::sections;
use csi_control_plane::telemetry::{Meter, Telemetry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long the last spans may take to reach the collector.
const FLUSH: Duration = Duration::from_secs(3);
/// Shown in a plan where the driver's name would be.
const UNKNOWN_DRIVER: &str = "driver.example.com";

fn main() -> ExitCode {
    let variables: BTreeMap<String, String> = std::env::vars().collect();
    let command = match cli::parse(std::env::args_os().collect(), &variables) {
        Ok(command) => command,
        Err(instead) => {
            if instead.exit == Exit::Success {
                print(&instead.text);
            } else {
                complain(&instead.text);
            }
            return instead.exit.into();
        }
    };
    let done = match command {
        Command::Run { config } => load(&config, &variables).map(|loaded| run(loaded, &variables)),
        Command::Check { config, driver_name, output } => {
            check(&config, &variables, driver_name.as_deref(), output).map(|()| Ok(Exit::Success))
        }
        Command::Schema => {
            print(&format!("{:#}\n", Config::schema(&sections())));
            Ok(Ok(Exit::Success))
        }
        Command::Version => {
            print(&format!("csi-control-plane {}\n", env!("CARGO_PKG_VERSION")));
            Ok(Ok(Exit::Success))
        }
        #[cfg(feature = "sandbox")]
        Command::Sandbox { keep, csi_endpoint, node_id, config } => {
            let wanted = csi_control_plane::sandbox::Wanted { keep, endpoint: csi_endpoint, node_id, overlay: config };
            let played = csi_control_plane::sandbox::run(wanted, &variables);
            Ok(played.map(|()| Exit::Success).map_err(Into::into))
        }
        #[cfg(not(feature = "sandbox"))]
        Command::Sandbox { .. } => Ok(Err(anyhow::anyhow!("this build has no sandbox (cargo feature `sandbox`)"))),
    };
    match done {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(error)) => {
            complain(&format!("error: {}\n", chain(error.as_ref())));
            Exit::Failure.into()
        }
        Err(text) => {
            complain(&text);
            Exit::Config.into()
        }
    }
}

/// Loads the configuration, or tells of every fault at once.
fn load(path: &Path, variables: &BTreeMap<String, String>) -> Result<Loaded, String> {
    let file = File::read(path).map_err(|error| format!("error: {}\n", chain(&error)))?;
    let sources = Sources { file: Some(file), environment: variables.clone() };
    config::load(&sources, &sections()).map_err(|rejected| format!("{rejected}\n"))
}

fn check(
    path: &Path,
    variables: &BTreeMap<String, String>,
    driver: Option<&str>,
    output: Output,
) -> Result<(), String> {
    let file = File::read(path).map_err(|error| format!("error: {}\n", chain(&error)))?;
    let sources = Sources { file: Some(file), environment: variables.clone() };
    let loaded = match (config::load(&sources, &sections()), output) {
        (Ok(loaded), _) => loaded,
        (Err(rejected), Output::Text) => return Err(format!("{rejected}\n")),
        (Err(rejected), Output::Json) => {
            print(&format!("{:#}\n", serde_json::json!({ "faults": rejected.to_json() })));
            return Err(String::new());
        }
    };
    let plan = Plan::of(&loaded, driver.unwrap_or(UNKNOWN_DRIVER)).map_err(|error| format!("error: {error}\n"))?;
    match output {
        Output::Text => {
            print(&format!("{}: valid\n\n{plan}", path.display()));
            for warning in &loaded.warnings {
                complain(&format!("warning: {warning}\n"));
            }
        }
        Output::Json => {
            let valid =
                serde_json::json!({ "plan": plan, "configuration": loaded.effective(), "warnings": loaded.warnings });
            print(&format!("{valid:#}\n"));
        }
    }
    Ok(())
}

/// Serves. An error that the log has told is an exit code only: whoever collects the log's JSON reads nothing but JSON.
fn run(loaded: Loaded, variables: &BTreeMap<String, String>) -> anyhow::Result<Exit> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(loaded.config.runtime.threads(cores))
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let host = Environment::host_name(variables);
        let silent = loaded.config.telemetry.logs.level.trim().eq_ignore_ascii_case("off");
        let settings = app::telemetry_settings(&loaded.config.telemetry, &host);
        let telemetry =
            Telemetry::install(&settings, variables, Clock::system()).context("cannot set up logs and traces")?;
        for warning in &loaded.warnings {
            tracing::warn!(warning, "configuration");
        }
        let result = serve(loaded, variables).await.map(|()| Exit::Success);
        let result = match result {
            Err(error) if !silent => {
                tracing::error!(error = chain(error.as_ref()), "ended by an error");
                Ok(Exit::Failure)
            }
            result => result,
        };
        telemetry.shutdown(FLUSH).await;
        result
    })
}

async fn serve(loaded: Loaded, variables: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let endpoint = Endpoint::parse(&loaded.config.csi.endpoint)?;
    let diagnostics = match loaded.config.diagnostics.listen {
        None => None,
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot listen on {address} (diagnostics.listen)"))?,
        ),
    };
    let environment = Environment {
        clock: Clock::system(),
        entropy: Entropy::system(),
        meter: Meter::new(),
        cluster: loaded.config.kubernetes.kubeconfig.clone().map_or(ClusterAccess::Inferred, ClusterAccess::Kubeconfig),
        driver: endpoint.dial(),
        endpoint: loaded.config.csi.endpoint.clone(),
        instance: Environment::instance(variables),
        diagnostics,
    };
    let stop = CancellationToken::new();
    let signals = stop_on_signal(stop.clone())?;
    let served = app::serve(loaded, environment, stop);
    tokio::pin!(served);
    tokio::select! {
        biased;
        result = &mut served => Ok(result?),
        () = signals => {
            // The second signal, or a first one that the daemon has answered: see `stop_on_signal`.
            anyhow::bail!("stopped at once by a second signal; leases were not handed back")
        }
    }
}

/// Cancels `stop` at the first SIGTERM or SIGINT. Resolves at the second: whoever sends it does not want to wait.
fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        for first in [true, false] {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first {
                tracing::info!("stopping: letting what is in flight end and handing the leases back");
                stop.cancel();
            }
        }
    })
}

fn print(text: &str) {
    // A reader that went away, such as `head`, is no error of ours.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
