//! A user's shell, and the commands that `migrate` tells its user to carry out.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::programs::find;

/// How long a line may take: a roll-out whose pods take their time to end is the longest.
const PATIENCE: Duration = Duration::from_secs(180);

/// A shell in a user's folder.
pub(crate) struct Shell<'a> {
    pub(crate) folder: &'a Path,
    /// The cluster, and who the user is there.
    pub(crate) kubeconfig: PathBuf,
}

impl Shell<'_> {
    /// Carries out a line, which must end well.
    pub(crate) async fn done(&self, line: &str) -> String {
        self.run(line).await.unwrap_or_else(|told| panic!("{told}"))
    }

    /// Carries out a line, and says what went wrong. `diff` ends well where it finds a difference, too.
    pub(crate) async fn run(&self, line: &str) -> Result<String, String> {
        let folder_of = |program: &Path| program.parent().unwrap().display().to_string();
        let ours = Path::new(env!("CARGO_BIN_EXE_csi-control-plane"));
        let path = [&*folder_of(&find("kubectl")), &folder_of(ours), "/usr/local/bin", "/usr/bin", "/bin"].join(":");
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env_clear().current_dir(self.folder).stdin(Stdio::null()).kill_on_drop(true);
        shell.env("PATH", path).env("HOME", self.folder).env("KUBECONFIG", &self.kubeconfig);
        let ended = tokio::time::timeout(PATIENCE, shell.output()).await;
        let ended = ended.map_err(|_| format!("never ended: {line}"))?.unwrap();
        let [told, wrong] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let differs = line.starts_with("diff ") && ended.status.code() == Some(1);
        if ended.status.success() || differs {
            return Ok(told);
        }
        Err(format!("{line}: {}\n{told}\n{wrong}", ended.status))
    }
}

/// The commands of a report: those of the way there, and those of the way back.
pub(crate) fn commands(report: &str) -> (Vec<String>, Vec<String>) {
    let steps = report.split_once("\nnext\n").unwrap().1;
    let (there, back) = steps.split_once("to go back, at any time\n").unwrap();
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.map(|line| {
            line.split_once(". ").filter(|(number, _)| number.parse::<u8>().is_ok()).map_or(line, |it| it.1)
        });
        // Remarks: a shell's, and those in brackets.
        lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '('])).map(str::to_owned).collect()
    };
    (lines(there), lines(back))
}
