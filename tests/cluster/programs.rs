//! The programs that `build.sh` has built, as processes that never outlive the tests.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where to look for programs: what `build.sh` printed.
const PATH: &str = "CLUSTER_PROGRAMS";
/// Where to look before: somebody's own etcd, kube-apiserver and kubectl, in a folder of setup-envtest.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// How long a process may take to stop when it is asked to.
const GRACE: Duration = Duration::from_secs(10);

/// Ends the programs that a folder names, as far as they are those that run in it: a number may be another process's by now.
const END: &str = r#"
for file in "$1"/*.pid; do
    pid="$(cat "$file" 2>/dev/null)"
    [ "$(readlink "/proc/$pid/cwd")" = "$1" ] && kill -9 "$pid"
done
"#;

/// Waits until the tests are over, however they end, ends what they have left (`$2`), and leaves nothing but logs: no keys, no tokens.
const JANITOR: &str = r#"
trap '' INT TERM HUP
read -r _
eval "$2"
sleep 0.2
find "$1" -mindepth 1 -maxdepth 1 ! -name '*.log' -exec rm -rf {} +
"#;

/// A program's file.
pub(crate) fn find(program: &str) -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let [assets, path] = [ASSETS, PATH].map(std::env::var_os);
    find_in(assets.as_deref(), path.as_deref(), program).unwrap_or_else(|| {
        panic!("{program} is nowhere in {ASSETS} and {PATH}, which is what tests/cluster/build.sh prints: run `just cluster`")
    })
}

/// The first file of that name in the folder of assets and on the path, from the root: programs run in folders of their own.
fn find_in(assets: Option<&OsStr>, path: Option<&OsStr>, program: &str) -> Option<PathBuf> {
    let folders = assets.map(PathBuf::from).into_iter().chain(path.into_iter().flat_map(std::env::split_paths));
    let file = folders.map(|folder| folder.join(program)).find(|file| file.is_file())?;
    Some(std::path::absolute(file).unwrap())
}

/// Ends what a folder's tests leave behind.
pub(crate) struct Janitor(#[expect(dead_code, reason = "its standing input tells it that we live")] Child);

impl Janitor {
    pub(crate) fn watch(folder: &Path) -> Self {
        forget_earlier_runs(folder);
        let mut command = Command::new("sh");
        // As `/proc` names it.
        let folder = folder.canonicalize().unwrap();
        command.args(["-c", JANITOR, "janitor"]).arg(folder).arg(END).stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

/// Removes the folders beside this one whose tests are over: the logs of the last run are enough. They are named
/// `cluster-<process>-<number>`. What runs is in `/proc`: these tests are for Linux, as what builds their programs is.
///
/// Their janitors may still be at work, and find nothing any more in a folder that is gone. So what it names is ended here as well.
fn forget_earlier_runs(folder: &Path) {
    for other in std::fs::read_dir(folder.parent().unwrap()).unwrap().flatten() {
        let name = other.file_name().into_string().unwrap_or_default();
        let process = name.strip_prefix("cluster-").and_then(|name| name.split('-').next());
        let is_over = |process: &str| process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists();
        if process.is_some_and(is_over) {
            // Another run may do the same at the same time.
            let Ok(old) = other.path().canonicalize() else { continue };
            let ended = Command::new("sh").args(["-c", END, "end"]).arg(old).stderr(Stdio::null()).status();
            ended.expect("there is a shell");
            let _ = std::fs::remove_dir_all(other.path());
        }
    }
}

/// A program that runs.
pub(crate) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
    pid: PathBuf,
}

impl Program {
    /// Starts a program that logs into `folder`, after what it has logged there before.
    pub(crate) fn start(folder: &Path, name: &str, arguments: &[String]) -> Self {
        Self::run(folder, name, &find(name), arguments)
    }

    /// The same for any program's file, under a name of its own.
    pub(crate) fn run(folder: &Path, name: &str, file: &Path, arguments: &[String]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let told = File::options().create(true).append(true).open(&log).unwrap();
        let child = Command::new(file)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(told.try_clone().unwrap())
            .stderr(told)
            .spawn()
            .unwrap();
        let pid = folder.join(format!("{name}.pid"));
        std::fs::write(&pid, child.id().to_string()).unwrap();
        Self { name: name.to_owned(), child, log, pid }
    }

    /// Whether it still runs, or its last output.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait().unwrap() {
            None => Ok(()),
            Some(status) => Err(format!("{} ended ({status}):\n{}", self.name, self.last_words())),
        }
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let _ = Command::new("kill").args(["-s", name]).arg(self.child.id().to_string()).status();
    }

    /// SIGTERM, and some time to obey.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        let stopped = async {
            while self.child.try_wait().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // Its rest is dropped.
        let _ = tokio::time::timeout(GRACE, stopped).await;
    }
}

impl Drop for Program {
    /// SIGKILL, if it still runs.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.pid);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn assets_come_before_what_was_built_and_each_does_without_the_other() {
        // Here, as the benches take this file in and have no tests.
        use super::{File, find_in};

        let folder = tempfile::tempdir().unwrap();
        let [assets, built] = ["assets", "built"].map(|name| folder.path().join(name));
        for (place, programs) in [(&assets, &["etcd"][..]), (&built, &["etcd", "kube-scheduler"])] {
            std::fs::create_dir(place).unwrap();
            for program in programs {
                File::create(place.join(program)).unwrap();
            }
        }
        let path = std::env::join_paths([&folder.path().join("nowhere"), &built]).unwrap();
        let (assets_only, path_only) = (Some(assets.as_os_str()), Some(path.as_os_str()));
        assert_eq!(find_in(assets_only, path_only, "etcd"), Some(assets.join("etcd")));
        assert_eq!(find_in(assets_only, path_only, "kube-scheduler"), Some(built.join("kube-scheduler")));
        assert_eq!(find_in(assets_only, None, "etcd"), Some(assets.join("etcd")));
        assert_eq!(find_in(None, path_only, "etcd"), Some(built.join("etcd")));
        assert_eq!(find_in(assets_only, path_only, "kubectl"), None);
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(
            find_in(Some("src".as_ref()), None, "lib.rs"),
            Some(here.join("src/lib.rs")),
            "from wherever it runs"
        );
    }

    #[tokio::test]
    async fn what_is_left_when_the_tests_are_over_is_ended_and_nothing_stays_but_logs() {
        use super::{GRACE, Janitor, Path, Program};

        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("of-these-tests");
        std::fs::create_dir_all(folder.join("etcd")).unwrap();
        for name in ["api.key", "admin.kubeconfig", "etcd/data"] {
            std::fs::write(folder.join(name), "secret").unwrap();
        }
        let janitor = Janitor::watch(&folder);
        let mut left = Program::run(&folder, "sleep", Path::new("sleep"), &["600".to_owned()]);
        left.check().unwrap();
        assert!(folder.join("api.key").exists(), "the tests are not over");
        // As when the process of the tests ends, in whatever way: its end of the pipe closes.
        drop(janitor);
        let stays = || -> Vec<_> { std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect() };
        let is_clean = async {
            while left.check().is_ok() || stays() != ["sleep.log"] {
                tokio::time::sleep(super::Duration::from_millis(20)).await;
            }
        };
        let cleaned = tokio::time::timeout(GRACE, is_clean).await;
        assert!(cleaned.is_ok(), "{:?} stays; the program: {:?}", stays(), left.check());
    }
    #[test]
    fn what_an_earlier_run_has_left_is_ended_before_its_folder_goes_and_nobody_else() {
        use super::{Command, Path, Program, forget_earlier_runs};

        let root = tempfile::tempdir().unwrap();
        let mut over = Command::new("true").spawn().unwrap();
        over.wait().unwrap();
        let old = root.path().join(format!("cluster-{}-0", over.id()));
        let start = |folder: &Path| {
            std::fs::create_dir_all(folder).unwrap();
            Program::run(folder, "sleep", Path::new("sleep"), &["600".to_owned()])
        };
        let (mut left, mut other) = (start(&old), start(&root.path().join("elsewhere")));
        // A number that was another program's when it was written.
        std::fs::write(old.join("gone.pid"), other.id().to_string()).unwrap();
        forget_earlier_runs(&root.path().join("of-these-tests"));
        assert!(!old.exists());
        assert!(left.child.wait().is_ok_and(|status| !status.success()));
        other.check().unwrap();
    }
}
