//! The programs that `build.sh` has built, as processes that never outlive the tests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where to look for programs: what `build.sh` printed.
const PATH: &str = "CLUSTER_PROGRAMS";

/// How long a process may take to stop when it is asked to.
const GRACE: Duration = Duration::from_secs(10);

/// Waits until the tests are over, however they end, and ends what they have left.
const JANITOR: &str = r#"
trap '' INT TERM HUP
read -r _
for file in "$1"/*.pid; do [ -f "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null; done
sleep 0.2
rm -rf "$1/etcd" "$1"/*.pid "$1"/*.key
"#;

/// A program's file.
pub(crate) fn find(program: &str) -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let path =
        std::env::var_os(PATH).expect("CLUSTER_PROGRAMS is what tests/cluster/build.sh prints: run `just cluster`");
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("{program} is nowhere in {PATH}"))
}

/// Ends what a folder's tests leave behind.
pub(crate) struct Janitor(#[expect(dead_code, reason = "its standing input tells it that we live")] Child);

impl Janitor {
    pub(crate) fn watch(folder: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", JANITOR, "janitor"]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().unwrap())
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

    /// Fails the test if the program has ended.
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
        // What is left of it is dropped.
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
