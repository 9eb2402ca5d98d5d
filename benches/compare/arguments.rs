//! What to run.

use std::path::PathBuf;
use std::time::Duration;

/// What `--help` says.
const USAGE: &str = "\
Usage: just compare [OPTIONS]

  --workloads LIST   of attach, provision, resize, snapshot, polled-snapshot, both, all, capacity, pods,
                     node (default: all)
  --scenarios LIST   of burst, slow-burst, crowded-burst, single, start, failover, cut, idle, first-attach, refresh, node,
                     scale (default: all but scale)
  --count LIST       volumes of a burst (default 500; the full comparison: 500,5000)
  --idle LIST        volumes of the idle scenario (default 0,1000,10000)
  --scale LIST       volumes of ours, of another driver, nodes, attachments at once (default 100000,100000,5000,5000)
  --segments N       of the capacity workload, each with three classes (default 1000)
  --rounds N         (default 3)
  --bound DURATION   after so long a phase of a contender with a throttle, or of polled-snapshot, is cut, and its rate so far is
                     told; 0: never (default 60s)
  --contenders LIST  of csi-control-plane, csi-attacher, csi-attacher-tuned, csi-provisioner, csi-provisioner-tuned, csi-resizer,
                     csi-resizer-tuned, csi-snapshotter, csi-snapshotter-tuned, sidecars-tuned, kube-controller-manager,
                     kube-controller-manager-tuned, bare, bare-no-intent,
                     csi-control-plane-{no-intent,attacher,attacher-reconciler,with-resizer,without-snapshotter,apart}
                     (default: all)
  --seed N           of the moments at which a leader goes (default: another each time; it is printed)
  --binary PATH      ours (default: the image's, target/MACHINE-unknown-linux-musl/release/csi-control-plane)
  --before PATH      another build of ours, measured as csi-control-plane-before: what a change has made of it
  --order FILE       write a linker script that puts first what ours executes, a binary with symbols, in QEMU: `just order`
  --results FOLDER   where results.json, table.md and chart.svg go (default benches/compare/results)
  --add              keep the results of scenarios that are not run
  --plan             measure nothing: say what would be measured, and how long that takes, about
  --report           measure nothing: write the table, the chart and the README of results.json again

`--rounds 1 --scenarios burst,single,start --bound 20s` takes a quarter of an hour, `--rounds 3 --bound 60s`, the default, four
hours, the same with `--count 500,5000` six and a half. For the night: `--count 500,5000 --bound 0`.
`--plan` beside any others says what they cost.";

/// The program's arguments.
#[derive(Debug, Clone)]
pub(crate) struct Arguments {
    pub(crate) workloads: Vec<String>,
    pub(crate) scenarios: Vec<String>,
    pub(crate) counts: Vec<usize>,
    pub(crate) idle: Vec<usize>,
    /// Volumes of ours, of another driver, nodes, attachments at once: of the scenario `scale`.
    pub(crate) scale: [usize; 4],
    pub(crate) segments: usize,
    pub(crate) rounds: usize,
    pub(crate) bound: Option<Duration>,
    pub(crate) contenders: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) binary: PathBuf,
    /// Another build, to be measured beside it.
    pub(crate) before: Option<PathBuf>,
    /// Where the linker script goes that puts first what the binary executes.
    pub(crate) order: Option<PathBuf>,
    pub(crate) results: PathBuf,
    pub(crate) add: bool,
    pub(crate) only_report: bool,
    pub(crate) only_plan: bool,
    /// What made the results.
    pub(crate) command: String,
}

impl Arguments {
    /// Reads them; what is wrong is told with the usage.
    pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Self, String> {
        let target = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("no target folder")?;
        let mut this = Self {
            workloads: Vec::new(),
            scenarios: Vec::new(),
            counts: vec![500],
            idle: vec![0, 1000, 10_000],
            scale: [100_000, 100_000, 5_000, 5_000],
            segments: 1000,
            rounds: 3,
            bound: Some(Duration::from_secs(60)),
            contenders: Vec::new(),
            seed: rand::random_range(0..1_000_000),
            binary: target.join(format!("{}-unknown-linux-musl/release/csi-control-plane", std::env::consts::ARCH)),
            before: None,
            order: None,
            results: Self::published(),
            add: false,
            only_report: false,
            only_plan: false,
            command: String::new(),
        };
        // Cargo adds `--bench`.
        let given: Vec<String> = given.filter(|argument| argument != "--bench").collect();
        format!("just compare {}", given.join(" ")).trim_end().clone_into(&mut this.command);
        let mut given = given.into_iter();
        while let Some(argument) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{argument} needs a value\n\n{USAGE}"));
            let wrong = |value: &str| format!("{argument} does not take {value:?}\n\n{USAGE}");
            match argument.as_str() {
                "--workloads" => this.workloads = list(&value()?),
                "--scenarios" => this.scenarios = list(&value()?),
                "--contenders" => this.contenders = list(&value()?),
                "--count" => this.counts = numbers(&value()?).map_err(|text| wrong(&text))?,
                "--idle" => this.idle = numbers(&value()?).map_err(|text| wrong(&text))?,
                "--scale" => {
                    let text = value()?;
                    let sizes = numbers(&text).map_err(|text| wrong(&text))?;
                    this.scale = sizes.try_into().map_err(|_| wrong(&text))?;
                }
                "--segments" => {
                    let text = value()?;
                    this.segments = text.parse().ok().filter(|segments| *segments > 0).ok_or_else(|| wrong(&text))?;
                }
                "--rounds" => {
                    let text = value()?;
                    this.rounds = text.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(|| wrong(&text))?;
                }
                "--bound" => {
                    let text = value()?;
                    let seconds: u64 = text.trim_end_matches('s').parse().map_err(|_| wrong(&text))?;
                    this.bound = (seconds > 0).then(|| Duration::from_secs(seconds));
                }
                "--seed" => {
                    let text = value()?;
                    this.seed = text.parse().map_err(|_| wrong(&text))?;
                }
                "--binary" => this.binary = std::path::absolute(value()?).map_err(|error| error.to_string())?,
                "--before" => this.before = Some(std::path::absolute(value()?).map_err(|error| error.to_string())?),
                "--order" => this.order = Some(PathBuf::from(value()?)),
                "--results" => this.results = PathBuf::from(value()?),
                "--add" => this.add = true,
                "--plan" => this.only_plan = true,
                "--report" => this.only_report = true,
                "--help" | "-h" => return Err(USAGE.to_owned()),
                other => return Err(format!("unknown argument {other:?}\n\n{USAGE}")),
            }
        }
        Ok(this)
    }

    /// Whether the README tells of the results. A try elsewhere is nothing to tell the world.
    pub(crate) fn is_published(&self) -> bool {
        self.results == Self::published()
    }

    /// Where the results are that the README tells of.
    fn published() -> PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/compare/results")
    }

    /// Whether a list names `name`; an empty one names everything.
    pub(crate) fn wants(list: &[String], name: &str) -> bool {
        list.is_empty() || list.iter().any(|wanted| wanted == name)
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn numbers(text: &str) -> Result<Vec<usize>, String> {
    text.split(',').map(|number| number.parse().map_err(|_| number.to_owned())).collect()
}
