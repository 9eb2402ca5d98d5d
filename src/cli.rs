//! Arguments to a [`Command`]; nothing is run here.
//!
//! | exit code | name | when |
//! |---|---|---|
//! | 0 | [`Exit::Success`] | the verb did what it says; `run` was asked to stop and has stopped in order |
//! | 1 | [`Exit::Failure`] | it could not be done: the API refused, the driver changed its name, a sandbox step was not observed |
//! | 64 | [`Exit::Usage`] | the command line makes no sense (`EX_USAGE` of sysexits.h) |
//! | 78 | [`Exit::Config`] | the configuration, or what `migrate` is to read, has faults or cannot be read (`EX_CONFIG`) |
//!
//! 64 and 78 won't go away by themselves: a supervisor may stop restarting on them. A value that a flag gives to a key is checked with
//! the configuration. The environment is an argument too,
//! because one variable stands in for `--config`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::build;
use crate::config::sidecar::Sidecar;
use crate::config::{FILE_VARIABLE, flags, sidecar};
use crate::process::duration;

use values::{assumed, driver_name, image, secret};

mod keys;
#[cfg(feature = "manual")]
pub mod manual;
mod values;

pub use keys::{KeyFlags, settings_text};

/// The exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Success = 0,
    /// Failure.
    Failure = 1,
    /// The command line is invalid.
    Usage = 64,
    /// The configuration has errors.
    Config = 78,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Serve until a signal.
    Run {
        /// The configuration file. `None`: the flags enable a role.
        config: Option<PathBuf>,
        /// The flags that set keys.
        keys: KeyFlags,
    },
    /// Validate, offline unless a kubeconfig is given, and print the plan.
    Check {
        /// The configuration file. `None`: the flags enable a role.
        config: Option<PathBuf>,
        /// The flags that set keys, as `run` takes them.
        keys: KeyFlags,
        /// The driver's name, because the plan depends on it; `check` does not call the driver.
        driver_name: Option<String>,
        /// Accept a configuration that enables no role.
        allow_empty: bool,
        /// Also connect to the API server of this kubeconfig.
        kubeconfig: Option<PathBuf>,
        /// The format of the plan.
        output: Output,
    },
    /// Print the configuration's JSON Schema.
    Schema,
    /// Print the version.
    Version,
    /// Print what makes a shell complete our command line.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages.
    Man {
        /// The folder.
        folder: PathBuf,
    },
    /// Succeed, as node-driver-registrar's `--mode=kubelet-registration-probe` does.
    RegistrationProbe {
        /// The path of the driver's socket on the host. It is required there, too, and not looked at.
        path: PathBuf,
    },
    /// Rewrite a workload with Go sidecars.
    Migrate(Box<Migrate>),
    /// Print the orphans that the leader shows.
    Orphans(Orphans),
    /// Run the demo on this machine.
    Sandbox {
        /// Keep running after the demo.
        keep: bool,
        /// The user's own driver; `None`: the demo driver.
        csi_endpoint: Option<String>,
        /// The ID of a node that the user's driver knows; `None`: the sandbox calls its node service.
        node_id: Option<String>,
        /// Changes to the sandbox's configuration. Never read from the environment, which may name a real cluster's
        /// file.
        config: Option<PathBuf>,
        /// How long each step may take; none: a minute.
        step_timeout: Option<Duration>,
    },
    /// Run the sandbox's driver alone, as a plugin that mounts volumes.
    DemoDriver {
        /// Where it listens.
        endpoint: String,
        /// The folder of its state and volumes.
        storage: PathBuf,
        /// The node that it stands on; `None`: it has no node service.
        node_id: Option<String>,
        /// Its profile, in place of the default.
        profile: Option<PathBuf>,
    },
}

/// The options of `migrate`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Migrate {
    /// A manifest, or a folder with manifests (.yaml, .yml, .json); can be given several times, `-` is the standard input. The
    /// workload is in one of them.
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The folder for the written files. Without it, the manifests go to the standard output.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The driver's name, if the manifest does not have it.
    #[arg(long, value_name = "NAME", value_parser = driver_name)]
    pub driver_name: Option<String>,
    /// The workload's namespace, if the manifest has none.
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The workload, if several have sidecars that can be replaced.
    #[arg(long, value_name = "KIND/NAME")]
    pub workload: Option<String>,
    /// A sidecar to replace, by its container's name, where the pod has those of several drivers; can be given several times.
    #[arg(long = "container", value_name = "NAME")]
    pub containers: Vec<String>,
    /// The socket of the driver whose sidecars are replaced, where the pod has several drivers.
    #[arg(long, value_name = "PATH", conflicts_with = "containers")]
    pub socket: Option<String>,
    /// The version of a sidecar, by its name or its container's, such as csi-provisioner=4.0.1, where the image's tag does not
    /// say it; can be given several times.
    #[arg(long = "assume", value_name = "SIDECAR=VERSION", value_parser = assumed)]
    pub assumed: Vec<(String, String)>,
    /// The daemon's image in your registry (the README says how to build it).
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub image: Option<String>,
    /// A secret that the daemon may read; can be given several times. Without it: every secret of the cluster.
    #[arg(long = "secret", value_name = "NAMESPACE/NAME", value_parser = secret)]
    pub secrets: Vec<(String, String)>,
    /// Leave out unknown and undecided flags instead of refusing the workload: all, or only those with these names of flags and
    /// feature gates.
    #[arg(
        long,
        value_name = "GATE,FLAG",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_delimiter = ','
    )]
    pub lenient: Option<Vec<String>>,
    /// How to print the report.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The options of `orphans`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Orphans {
    /// The kubeconfig. Default: as for kubectl.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The driver's name.
    #[arg(long, value_name = "NAME", value_parser = driver_name)]
    pub driver_name: String,
    /// The daemon's namespace. Default: where `run` would have its Leases: `POD_NAMESPACE`, else a pod's own, else default.
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// How to print them.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// A shell that can complete our command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// Bourne again shell.
    Bash,
    /// Elvish.
    Elvish,
    /// Friendly interactive shell.
    Fish,
    /// PowerShell.
    Powershell,
    /// Z shell.
    Zsh,
}

/// There is no command to run: the user asked for help, or the command line is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instead {
    /// What to print: on standard output for [`Exit::Success`], else on standard error.
    pub text: String,
    /// The exit code.
    pub exit: Exit,
}

#[derive(Debug, Parser)]
#[command(
    name = "csi-control-plane",
    version = build::FULL_VERSION,
    about = "One daemon that does the work of the Go CSI sidecars beside a storage driver on Kubernetes"
)]
#[command(
    after_help = "Exit codes: 0 success, 1 failure, 64 wrong usage, 78 errors in the configuration or the manifest.\n\
    Every configuration key can be set by a variable: CSI_CONTROL_PLANE_CSI__TIMEOUT=30s is csi.timeout."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

/// A verb that a build lacks is not listed. It is parsed, and answered with the reason.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve a driver until SIGTERM or SIGINT.
    Run {
        /// The configuration file (or the variable `CSI_CONTROL_PLANE_CONFIG`).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        keys: KeyFlags,
    },
    /// Validate a configuration offline: print all errors, or the plan (roles, Leases, watches, RBAC).
    Check {
        /// The configuration file (or the variable `CSI_CONTROL_PLANE_CONFIG`); `-` is the standard input.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The same without `--config`.
        #[arg(value_name = "FILE", conflicts_with = "config")]
        file: Option<PathBuf>,
        #[command(flatten)]
        keys: KeyFlags,
        /// The driver's name, for the names of Leases and finalizers.
        #[arg(long, value_name = "NAME", value_parser = driver_name)]
        driver_name: Option<String>,
        /// Accept a configuration that enables no role.
        #[arg(long)]
        allow_empty: bool,
        /// Also connect to the API server of this kubeconfig, and say what is wrong with its certificates, proxy or credentials,
        /// or with the namespace of the Leases. Nothing is stored.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Print the JSON Schema of the configuration file.
    Schema,
    /// Print the version and the commit.
    Version,
    /// Print the completions of a shell, such as `csi-control-plane completions bash > /etc/bash_completion.d/csi-control-plane`.
    #[command(hide = cfg!(not(feature = "manual")))]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write a manual page of the program and one of each command.
    #[command(hide = cfg!(not(feature = "manual")))]
    Man {
        /// The folder, such as /usr/local/share/man/man1. It is made if it is not there; pages in it are replaced.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Succeed at once: for an exec probe that a manifest has kept from node-driver-registrar's
    /// `--mode=kubelet-registration-probe`. The daemon's /livez asks the registration socket.
    RegistrationProbe {
        /// The path of the driver's socket on the host. It is not looked at.
        #[arg(long, value_name = "PATH")]
        kubelet_registration_path: PathBuf,
    },
    /// Rewrite a controller's workload: replace its Go sidecars with this daemon, and report every flag.
    Migrate(Migrate),
    /// Print the volumes and snapshots that the driver lists and nothing in the cluster has known for an hour, as the leader's status
    /// page shows them. Needs the rights to get leases, pods and pods/proxy in the daemon's namespace, and
    /// `roles.reconciler.orphans: true`.
    Orphans(Orphans),
    /// Run a demo on this machine: a Kubernetes API, a demo driver and the daemon, from a new claim to its deleted
    /// volume.
    #[command(hide = cfg!(not(feature = "sandbox")))]
    Sandbox {
        /// Keep running after the demo, for kubectl and the status page.
        #[arg(long)]
        keep: bool,
        /// Use this driver instead of the demo driver.
        #[arg(long, value_name = "unix:///PATH")]
        csi_endpoint: Option<String>,
        /// The ID of a node that this driver knows, if its socket has no node service.
        #[arg(long, value_name = "ID", requires = "csi_endpoint")]
        node_id: Option<String>,
        /// A file with changes to the sandbox's configuration.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// How long each step may take to be seen, such as 5m for a slow driver. Default: 1m.
        #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
        step_timeout: Option<Duration>,
    },
    /// Run the sandbox's demo driver alone, as a CSI plugin that mounts volumes on this machine. For tests with pods: its volumes
    /// are folders.
    #[command(hide = cfg!(not(feature = "sandbox")))]
    DemoDriver {
        /// Where it listens.
        #[arg(long, value_name = "unix:///PATH")]
        endpoint: String,
        /// The folder of its state and volumes, the same for the controller and all nodes.
        #[arg(long, value_name = "DIR")]
        storage: PathBuf,
        /// The node that it stands on. Without it, it has no node service.
        #[arg(long, value_name = "ID")]
        node_id: Option<String>,
        /// What it can do, as YAML.
        #[arg(long, value_name = "FILE")]
        profile: Option<PathBuf>,
    },
}

/// Parses the command line. The first argument is the program's name. If a flag of `sidecars` is given, the error names
/// its replacement.
pub fn parse(
    arguments: Vec<OsString>,
    environment: &BTreeMap<String, String>,
    sidecars: &[&'static Sidecar],
) -> Result<Command, Instead> {
    let hint = arguments
        .iter()
        .skip(1)
        .filter_map(|argument| argument.to_str())
        .find_map(|argument| moved(sidecars, argument));
    let parsed = Arguments::try_parse_from(arguments).map_err(|error| instead(&error, hint.as_deref()))?;
    let file_unless_role = |given: Option<PathBuf>, keys: &KeyFlags| {
        let variable = environment.get(FILE_VARIABLE).filter(|path| !path.is_empty());
        let file = given.or_else(|| variable.map(PathBuf::from));
        if file.is_none() && !keys.enable_a_role() {
            let text = format!("no configuration file: give --config FILE, set {FILE_VARIABLE}, or give a --role");
            return Err(instead(&Arguments::command().error(ErrorKind::MissingRequiredArgument, text), None));
        }
        Ok(file)
    };
    Ok(match parsed.verb {
        Verb::Run { config, keys } => {
            let config = file_unless_role(config, &keys)?;
            if config.as_deref() == Some(Path::new("-")) {
                let text =
                    "`run` reads its configuration again while it serves, and the standard input ends: give it a file";
                return Err(instead(&Arguments::command().error(ErrorKind::ValueValidation, text), None));
            }
            Command::Run { config, keys }
        }
        Verb::Check { config, file, keys, driver_name, allow_empty, kubeconfig, output } => {
            let config = file_unless_role(config.or(file), &keys)?;
            Command::Check { config, keys, driver_name, allow_empty, kubeconfig, output }
        }
        Verb::Schema => Command::Schema,
        Verb::Version => Command::Version,
        Verb::Completions { shell } => Command::Completions { shell },
        Verb::Man { folder } => Command::Man { folder },
        Verb::RegistrationProbe { kubelet_registration_path: path } => Command::RegistrationProbe { path },
        Verb::Migrate(migrate) => Command::Migrate(Box::new(migrate)),
        Verb::Orphans(wanted) => Command::Orphans(wanted),
        Verb::Sandbox { keep, csi_endpoint, node_id, config, step_timeout } => {
            Command::Sandbox { keep, csi_endpoint, node_id, config, step_timeout }
        }
        Verb::DemoDriver { endpoint, storage, node_id, profile } => {
            Command::DemoDriver { endpoint, storage, node_id, profile }
        }
    })
}

/// A duration that is longer than zero.
fn positive_duration(text: &str) -> Result<Duration, String> {
    let parsed = duration::parse(text).filter(|parsed| !parsed.is_zero());
    parsed.ok_or_else(|| format!("expected {}, and more than 0", duration::ALLOWED))
}

fn instead(error: &clap::Error, hint: Option<&str>) -> Instead {
    let mut text = error.to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Instead { text, exit: Exit::Success },
        ErrorKind::UnknownArgument => {
            if let Some(hint) = hint {
                text = format!("{}\n\n{hint}\n", text.trim_end());
            }
        }
        _ => {}
    }
    Instead { text, exit: Exit::Usage }
}

/// A hint for users who try a flag of a Go sidecar. A flag with one meaning in several sidecars is listed once.
fn moved(sidecars: &[&'static Sidecar], argument: &str) -> Option<String> {
    let found = sidecar::find(sidecars, argument);
    let told = found.iter().map(|(sidecar, flag)| {
        let now = match flag.now {
            flags::Now::Key(key) => format!("is the configuration key {key} here"),
            flags::Now::Verb(verb) => format!("is the command `{verb}` here"),
            flags::Now::Gone => "has no counterpart here".to_owned(),
        };
        (flag.now, format!("{sidecar}'s flag --{} {now} ({})", flag.name, flag.note))
    });
    let mut texts: Vec<(flags::Now, String)> = Vec::new();
    for (now, text) in told {
        if !texts.iter().any(|(known, _)| *known == now) {
            texts.push((now, text));
        }
    }
    let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
    (!texts.is_empty()).then(|| format!("{}; all of them: docs/flags.md", texts.join("; ")))
}

#[cfg(test)]
mod tests;
