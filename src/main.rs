//! The commands. Only this file ends the process, prints, and reads the environment.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use csi_control_plane::app::{self, Configuration, ConfigurationHandle, Environment, Plan, Reached};
use csi_control_plane::build;
use csi_control_plane::cli::{self, Command, Exit, Output};
use csi_control_plane::cluster::ClusterAccess;
use csi_control_plane::config::{self, Config, File, FlagSetting, Loaded, Sources};
use csi_control_plane::csi::Endpoint;
use csi_control_plane::diagnostics::Door;
use csi_control_plane::election::Container;
use csi_control_plane::migrate::report::Lenient;
use csi_control_plane::migrate::{self, Files, Manifest, Outcome, Wanted};
use csi_control_plane::process::{Clock, Fault, Proxies, Rng, error_chain, input, listen, stop_on_signal};
use csi_control_plane::roles::{Instance, metrics, sections, sidecars};
use csi_control_plane::telemetry::{Meter, Telemetry, TelemetryState};
use tokio_util::sync::CancellationToken;

/// How long the last spans may take to reach the collector.
const FLUSH: Duration = Duration::from_secs(3);

/// Whether an output could not be written.
static IS_CUT_SHORT: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let exit = dispatch();
    // The output may be redirected to a file, which is then incomplete.
    if IS_CUT_SHORT.load(Ordering::Relaxed) { ExitCode::FAILURE } else { exit }
}

fn dispatch() -> ExitCode {
    let variables = match config::variables(std::env::vars_os()) {
        Ok(variables) => variables,
        Err(odd) => {
            complain(&format!("error: {odd}\n"));
            return Exit::Config.into();
        }
    };
    let command = match cli::parse(std::env::args_os().collect(), &variables, &sidecars::hosted()) {
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
        Command::Run { config, keys } => {
            let given = Given { file: config.as_deref(), variables: &variables, flags: keys.settings() };
            load(&given).map(|loaded| run(given, loaded))
        }
        Command::Check { config, keys, driver_name, allow_empty, kubeconfig, output } => {
            let given = Given { file: config.as_deref(), variables: &variables, flags: keys.settings() };
            let loaded = check(&given, driver_name.as_deref(), allow_empty, output);
            loaded.map(|loaded| match kubeconfig {
                Some(kubeconfig) => reach(kubeconfig, &loaded, driver_name.as_deref(), &variables, output),
                None => Ok(Exit::Success),
            })
        }
        Command::Schema => {
            print(&format!("{:#}\n", Config::schema(&sections())));
            Ok(Ok(Exit::Success))
        }
        Command::Version => {
            print(&format!("csi-control-plane {}\n", build::FULL_VERSION));
            Ok(Ok(Exit::Success))
        }
        #[cfg(feature = "manual")]
        Command::Completions { shell } => {
            print(&cli::manual::completions(shell));
            Ok(Ok(Exit::Success))
        }
        #[cfg(feature = "manual")]
        Command::Man { folder } => Ok(man(&folder).map(|()| Exit::Success)),
        #[cfg(not(feature = "manual"))]
        Command::Completions { .. } | Command::Man { .. } => {
            Ok(Err(anyhow::anyhow!("this build has no completions and no manual pages (cargo feature `manual`)")))
        }
        Command::RegistrationProbe { .. } => Ok(Ok(Exit::Success)),
        Command::Migrate(wanted) => migrate(&wanted),
        Command::Orphans(wanted) => Ok(orphans(wanted, &variables)),
        #[cfg(feature = "sandbox")]
        Command::Sandbox { keep, csi_endpoint, node_id, config, step_timeout } => {
            use csi_control_plane::sandbox::{self, SandboxError};
            let (endpoint, overlay) = (csi_endpoint, config);
            let wanted = sandbox::Wanted { keep, endpoint, node_id, overlay, step_timeout };
            match sandbox::run(wanted, &variables) {
                Err(SandboxError::Config(rejected)) => Err(format!("{rejected}\n")),
                Err(error @ SandboxError::Unreadable(_)) => Err(format!("error: {}\n", error_chain(&error))),
                played => Ok(played.map(|()| Exit::Success).map_err(Into::into)),
            }
        }
        #[cfg(feature = "sandbox")]
        Command::DemoDriver { endpoint, storage, node_id, profile } => {
            use csi_control_plane::sandbox::{self, Plugin};
            let wanted = Plugin { endpoint, storage, node_id, profile };
            Ok(sandbox::serve(&wanted, &variables).map(|()| Exit::Success).map_err(Into::into))
        }
        #[cfg(not(feature = "sandbox"))]
        Command::Sandbox { .. } | Command::DemoDriver { .. } => {
            Ok(Err(anyhow::anyhow!("this build has no sandbox (cargo feature `sandbox`)")))
        }
    };
    match done {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(error)) => {
            complain(&format!("error: {}\n", error_chain(error.as_ref())));
            Exit::Failure.into()
        }
        Err(text) => {
            complain(&text);
            Exit::Config.into()
        }
    }
}

/// What the configuration is made of.
struct Given<'a> {
    file: Option<&'a Path>,
    variables: &'a BTreeMap<String, String>,
    flags: Vec<FlagSetting>,
}

impl Given<'_> {
    /// Its name in messages.
    fn name(&self) -> String {
        self.file.map_or_else(|| "the command line".to_owned(), input::name)
    }

    fn sources(&self) -> Result<Sources, String> {
        let file = self.file.map(File::read).transpose();
        let file = file.map_err(|error| format!("error: {}\n", error_chain(&error)))?;
        Ok(Sources { base: None, file, environment: self.variables.clone(), flags: self.flags.clone() })
    }
}

/// Loads the configuration for this process, or prints all errors at once.
fn load(given: &Given<'_>) -> Result<Loaded, String> {
    config::load(&given.sources()?, &sections())
        .and_then(Loaded::to_run_here)
        .map_err(|rejected| format!("{rejected}\n"))
}

fn check(given: &Given<'_>, driver: Option<&str>, allow_empty: bool, output: Output) -> Result<Loaded, String> {
    let loaded = config::load(&given.sources()?, &sections());
    let with_a_role = |loaded: Loaded| loaded.with_a_role(&given.name(), &sections());
    let loaded = loaded.and_then(|loaded| if allow_empty { Ok(loaded) } else { with_a_role(loaded) });
    let loaded = match (loaded, output) {
        (Ok(loaded), _) => loaded,
        (Err(rejected), Output::Text) => return Err(format!("{rejected}\n")),
        (Err(rejected), Output::Json) => {
            print(&format!("{:#}\n", serde_json::json!({ "faults": rejected.to_json() })));
            return Err(String::new());
        }
    };
    let namespace = Environment::told_namespace(given.variables);
    let namespace = namespace.as_deref();
    let plan =
        driver.map_or_else(|| Plan::of_some_driver(&loaded, namespace), |driver| Plan::of(&loaded, driver, namespace));
    let plan = plan.map_err(|error| format!("error: {error}\n"))?;
    // This may be a pipeline, and the daemon's environment another.
    let said = |Fault { key, found, allowed, .. }: &Fault| {
        format!("{key}: {found} here; {allowed}, or the daemon ends at its start")
    };
    let warnings: Vec<String> = loaded.warnings.iter().cloned().chain(loaded.unmet.iter().map(said)).collect();
    match output {
        Output::Text => {
            print(&format!("{}: valid\n\n{}{plan}", given.name(), cli::settings_text(&given.flags)));
            for warning in &warnings {
                complain(&format!("warning: {warning}\n"));
            }
        }
        Output::Json => {
            let valid = serde_json::json!({
                "plan": plan,
                "configuration": loaded.effective(),
                "flags": given.flags,
                "warnings": warnings,
            });
            print(&format!("{valid:#}\n"));
        }
    }
    Ok(loaded)
}

/// Connects to the API server, after the plan was printed. JSON has one document alone.
fn reach(
    kubeconfig: PathBuf,
    loaded: &Loaded,
    driver: Option<&str>,
    variables: &BTreeMap<String, String>,
    output: Output,
) -> anyhow::Result<Exit> {
    let namespace = Environment::told_namespace(variables);
    let reach = app::reach(kubeconfig, loaded, Proxies::read(variables), namespace.as_deref(), driver);
    let reached: Reached = on_one_thread(reach)??;
    if matches!(output, Output::Text) {
        print(&format!("\nserver   {reached}\n"));
    }
    for misfit in reached.driver_object.unwrap_or_default() {
        complain(&format!("warning: {misfit}\n"));
    }
    Ok(Exit::Success)
}

/// Asks the leader for the orphans, through the API server.
fn orphans(wanted: cli::Orphans, variables: &BTreeMap<String, String>) -> anyhow::Result<Exit> {
    let cli::Orphans { kubeconfig, driver_name, namespace, output } = wanted;
    let access = kubeconfig.map_or_else(|| ClusterAccess::inferred(variables), ClusterAccess::Kubeconfig);
    let namespace = namespace.unwrap_or_else(|| Environment::lease_namespace(variables));
    let report = on_one_thread(app::orphans(&access, Proxies::read(variables), &driver_name, &namespace))??;
    print(&match output {
        Output::Text => report.to_string(),
        Output::Json => format!("{:#}\n", serde_json::to_value(report)?),
    });
    Ok(Exit::Success)
}

fn on_one_thread<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("cannot start the runtime")?.block_on(work))
}

/// Writes the manual pages. Pages of another version are replaced.
#[cfg(feature = "manual")]
fn man(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in cli::manual::pages().context("cannot make the pages")? {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Rewrites a workload. If the documents go to the standard output, the report goes to the standard error stream.
fn migrate(wanted: &cli::Migrate) -> Result<anyhow::Result<Exit>, String> {
    let outcome = migrate::migrate(&Wanted {
        manifests: manifests(&wanted.files)?,
        driver: wanted.driver_name.clone(),
        namespace: wanted.namespace.clone(),
        workload: wanted.workload.clone(),
        containers: wanted.containers.clone(),
        socket: wanted.socket.clone(),
        assumed: wanted.assumed.clone(),
        image: wanted.image.clone(),
        secrets: wanted.secrets.clone(),
        folder: wanted.out.as_ref().map(|folder| folder.display().to_string()),
        lenient: lenient(wanted.lenient.as_deref()),
    });
    let faults = outcome.faults_text();
    let Outcome { report, files } = outcome;
    if let (Some(folder), Some(files)) = (&wanted.out, &files)
        && let Err(error) = write_new(folder, files)
    {
        return Ok(Err(error));
    }
    // What is wrong comes first: the report may be long.
    complain(&faults);
    let documents = files.as_ref().filter(|_| wanted.out.is_none());
    match wanted.output {
        Output::Json => {
            let texts = documents.map(|files| BTreeMap::from(files.named()));
            print(&format!("{:#}\n", serde_json::json!({ "report": report, "files": texts })));
        }
        Output::Text => match documents {
            Some(files) => {
                complain(&report.to_string());
                print(&files.stream());
            }
            None => print(&report.to_string()),
        },
    }
    Ok(Ok(if files.is_some() { Exit::Success } else { Exit::Config }))
}

/// Which of the undecided is left out: all, if the option names nothing.
fn lenient(choice: Option<&[String]>) -> Lenient {
    match choice {
        None => Lenient::Nothing,
        Some(names) if names.iter().all(String::is_empty) => Lenient::Everything,
        Some(names) => Lenient::Named(names.iter().filter(|name| !name.is_empty()).cloned().collect()),
    }
}

/// Reads the manifests: files, the standard input, and what is directly in folders, by name.
fn manifests(paths: &[PathBuf]) -> Result<Vec<Manifest>, String> {
    let mut found = Vec::new();
    for path in paths {
        let name = input::name(path);
        let failed = |error: std::io::Error| format!("error: cannot read {name}: {error}\n");
        if path.is_dir() && !input::is_standard(path) {
            let entries = std::fs::read_dir(path).map_err(failed)?;
            let mut files: Vec<PathBuf> =
                entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
            files.retain(|file| {
                let is_manifest = |extension: &OsStr| ["yaml", "yml", "json"].iter().any(|it| extension == *it);
                file.is_file() && file.extension().is_some_and(is_manifest)
            });
            if files.is_empty() {
                return Err(format!(
                    "error: no manifest in {name}: expected files that end with .yaml, .yml or .json\n"
                ));
            }
            files.sort();
            found.extend(manifests(&files)?);
        } else {
            let text = input::read(path).map_err(failed)?;
            found.push(Manifest { name, text });
        }
    }
    Ok(found)
}

/// Writes the files into a folder without overwriting any: an existing file may be the manifest itself, or edited.
fn write_new(folder: &Path, files: &Files) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let there = files.named().into_iter().map(|(name, _)| folder.join(name)).find(|path| path.exists());
    if let Some(path) = there {
        anyhow::bail!("{} is there already: give an empty folder", path.display());
    }
    for (name, text) in files.named() {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Serves. An error that was logged is not printed again, because log collectors expect only JSON.
fn run(given: Given<'_>, loaded: Loaded) -> anyhow::Result<Exit> {
    let Given { file, variables, flags } = given;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(loaded.config.runtime.threads(cores))
        // Shorter than the pause between two readings of the configuration: otherwise each would keep the thread that reads for the next.
        .thread_keep_alive(Duration::from_secs(1))
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let host = Environment::host_name(variables);
        let settings = app::telemetry_settings(&loaded.config.telemetry, &host);
        let meter = metrics::meter();
        let telemetry = Telemetry::install(&settings, variables, Clock::system(), &meter)
            .context("cannot set up logs and traces")?;
        let level = telemetry.level().clone();
        let follow = |file: &Path| Configuration::file(file.to_owned(), variables.clone(), flags, level.clone());
        let configuration = file.map(follow);
        let result =
            serve(loaded, configuration, variables, meter, telemetry.state().clone()).await.map(|()| Exit::Success);
        let result = match result {
            Err(error) if !level.is_silent() => {
                tracing::error!(error = error_chain(error.as_ref()), "ended by an error");
                Ok(Exit::Failure)
            }
            result => result,
        };
        telemetry.shutdown(FLUSH).await;
        result
    })
}

async fn serve(
    loaded: Loaded,
    configuration: Option<Configuration>,
    variables: &BTreeMap<String, String>,
    meter: Meter,
    telemetry: TelemetryState,
) -> anyhow::Result<()> {
    let endpoint = Endpoint::parse(&loaded.config.csi.endpoint)?;
    let diagnostics = match loaded.config.diagnostics.listen {
        None => None,
        Some(address) => Some(Door::Tcp(
            listen(address).await.with_context(|| format!("cannot listen on {address} (diagnostics.listen)"))?,
        )),
    };
    let handle = configuration.as_ref().map(Configuration::handle);
    let environment = Environment {
        clock: Clock::system(),
        rng: Rng::system(),
        meter,
        cluster: match &loaded.config.kubernetes.kubeconfig {
            Some(path) => ClusterAccess::Kubeconfig(path.clone()),
            None => ClusterAccess::inferred(variables),
        },
        proxies: Proxies::read(variables),
        driver: endpoint.dial(),
        endpoint: loaded.config.csi.endpoint.clone(),
        instance: Instance { container: Container::of_this_process(), ..Environment::instance(variables) },
        diagnostics,
        telemetry,
        configuration,
    };
    let stop = CancellationToken::new();
    let signals = stop_on_signal(stop.clone()).context("cannot listen for SIGTERM and SIGINT")?;
    let hang_ups = look_on_hang_up(handle)?;
    let served = app::serve(loaded, environment, stop);
    tokio::pin!(served);
    tokio::select! {
        biased;
        result = &mut served => Ok(result?),
        () = hang_ups => Ok(()),
        () = signals => {
            // The second signal, or a first one that the daemon has answered: see `stop_on_signal`.
            anyhow::bail!("stopped at once by a second signal; leases were not handed back")
        }
    }
}

/// Makes the daemon read its configuration at each SIGHUP, if it has a file. Never resolves.
fn look_on_hang_up(configuration: Option<ConfigurationHandle>) -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hang_up = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    Ok(async move {
        while hang_up.recv().await.is_some() {
            if let Some(configuration) = &configuration {
                configuration.nudge();
            }
        }
        std::future::pending::<()>().await;
    })
}

fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        // A reader that went away, such as `head`, is no error of ours.
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        complain(&format!("error: cannot write the output: {error}\n"));
        IS_CUT_SHORT.store(true, Ordering::Relaxed);
    }
}

fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
