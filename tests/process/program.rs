//! A child process of this program: its output, its signals, its end, and its diagnostics over HTTP.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::process::Tasks;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The bound of any single wait on a busy machine. Only a failing test reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two looks at something that cannot be awaited.
const LOOK: Duration = Duration::from_millis(15);

/// Looks until `look` finds something.
pub(crate) async fn eventually<T, F: AsyncFnMut() -> Option<T>>(what: &str, look: F) -> T {
    eventually_some(look).await.unwrap_or_else(|| panic!("waited in vain: {what}"))
}

/// The same. `None`: nothing was found in time.
pub(crate) async fn eventually_some<T, F: AsyncFnMut() -> Option<T>>(mut look: F) -> Option<T> {
    let mut ticks = tokio::time::interval(LOOK);
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, found).await.ok()
}

/// The program that these tests are about.
pub(crate) const THIS: &str = env!("CARGO_BIN_EXE_csi-control-plane");

/// The program, without the environment of the test's caller.
fn command<S: AsRef<OsStr>>(arguments: &[S], variables: &[(&str, &str)]) -> Command {
    command_of(Path::new(THIS), arguments, variables)
}

fn command_of<S: AsRef<OsStr>>(program: &Path, arguments: &[S], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs it to its end.
pub(crate) async fn run<S: AsRef<OsStr>>(arguments: &[S], variables: &[(&str, &str)]) -> Ended {
    run_of(Path::new(THIS), arguments, variables).await
}

/// The same for another version of the program.
pub(crate) async fn run_of<S: AsRef<OsStr>>(program: &Path, arguments: &[S], variables: &[(&str, &str)]) -> Ended {
    ended(command_of(program, arguments, variables)).await
}

/// The same with this variable, whatever it holds.
pub(crate) async fn run_with_variable<S: AsRef<OsStr>>(arguments: &[S], name: &str, value: &OsStr) -> Ended {
    let mut command = command(arguments, &[]);
    command.env(name, value);
    ended(command).await
}

/// The same with this file as its standard input.
pub(crate) async fn run_reading<S: AsRef<OsStr>>(arguments: &[S], input: &Path) -> Ended {
    let mut command = command(arguments, &[]);
    command.stdin(std::fs::File::open(input).unwrap());
    ended(command).await
}

async fn ended(mut command: Command) -> Ended {
    let output = timeout(PATIENCE, command.output()).await;
    let Output { status, stdout, stderr } = output.expect("it ends by itself").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// The remains of a process.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit code; `None`: a signal ended it.
    pub(crate) code: Option<i32>,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

/// An answer of its diagnostics.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) code: u16,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body.
    pub(crate) body: String,
}

/// Ends a process when the tests end without having ended it: who is killed drops nothing. The end of its input tells it.
const GUARD: &str = r#"trap '' INT TERM HUP; read -r _; kill -9 "$1" 2>/dev/null"#;

/// A process that runs.
pub(crate) struct Program {
    /// Dropped before the process that it watches is reaped, and whose number may then be another's.
    _guard: Child,
    child: Child,
    stderr: Arc<Mutex<String>>,
    /// Holds the task that reads its standard error.
    reader: Tasks,
}

impl Program {
    /// Starts it.
    pub(crate) fn start<S: AsRef<OsStr>>(arguments: &[S], variables: &[(&str, &str)]) -> Self {
        Self::start_of(Path::new(THIS), arguments, variables)
    }

    /// Starts another version of it.
    pub(crate) fn start_of<S: AsRef<OsStr>>(program: &Path, arguments: &[S], variables: &[(&str, &str)]) -> Self {
        let mut child = command_of(program, arguments, variables).spawn().unwrap();
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard", &child.id().expect("it runs").to_string()]).kill_on_drop(true);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let guard = guard.spawn().unwrap();
        let stderr = Arc::new(Mutex::new(String::new()));
        let (reader, _) = Tasks::new("program");
        let (source, lines) = (child.stderr.take().unwrap(), Arc::clone(&stderr));
        reader.spawn("stderr", async move {
            let mut source = BufReader::new(source);
            let mut line = String::new();
            while source.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
                lines.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self { _guard: guard, child, stderr, reader }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Its standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// The lines of its log that are JSON, and their order.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.stderr().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for a line with this message.
    pub(crate) async fn logged(&self, message: &str) -> Value {
        let line = eventually_some(async || self.log().into_iter().find(|line| line["message"] == message)).await;
        line.unwrap_or_else(|| panic!("waited in vain: the log line {message:?} in\n{}", self.stderr()))
    }

    /// Waits for a line with this text on its standard output.
    pub(crate) async fn printed(&mut self, text: &str) {
        let mut lines = BufReader::new(self.child.stdout.as_mut().unwrap()).lines();
        let found = async { while lines.next_line().await.unwrap().is_some_and(|line| !line.contains(text)) {} };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never printed: {text}"));
    }

    /// For how long it has kept a core busy so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // Behind the name, which may hold anything: user and system time are the 14th and 15th field of all, in hundredths.
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(10 * ticks)
    }

    /// Sends it a signal by name, such as `TERM`.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.id();
        let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {pid}")]).status().await.unwrap();
        assert!(sent.success(), "signal {name}");
    }

    /// Whether SIGSTOP has come to it.
    pub(crate) fn is_stopped(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        status.lines().any(|line| line.starts_with("State:") && line.contains("stopped"))
    }

    /// Waits for its end and tells its exit code; `None`: a signal ended it.
    pub(crate) async fn exit(&mut self) -> Option<i32> {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        // Its last words may still be in the pipe.
        let drained = eventually("the end of its output", async || self.reader.running().is_empty().then_some(()));
        drained.await;
        status.code()
    }

    /// Whether it runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Where its diagnostics are, as it says itself: the configuration asks for any free port.
    pub(crate) async fn address(&self) -> SocketAddr {
        self.logged("serving diagnostics").await["address"].as_str().unwrap().parse().unwrap()
    }

    /// Asks its diagnostics.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        get(self.address().await, path).await
    }

    /// Its `/status.json`.
    pub(crate) async fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status.json").await.body).unwrap()
    }

    /// Waits until its status passes.
    pub(crate) async fn shows(&self, what: &str, passes: impl Fn(&Value) -> bool) -> Value {
        eventually(what, async || Some(self.status().await).filter(&passes)).await
    }

    /// Waits until its attacher is in this state, its caches are filled and its election is watched.
    pub(crate) async fn is(&self, state: &str) -> Value {
        self.plays("attacher", state).await
    }

    /// The same of the role of this name.
    pub(crate) async fn plays(&self, name: &str, state: &str) -> Value {
        self.shows(&format!("the {name} is {state}"), |status| {
            role(status, name)["state"] == state
                && all(&status["caches"], |cache| cache["synced"] == true)
                && role(status, name)["leader"].is_string()
        })
        .await
    }
}

/// One role of a status.
pub(crate) fn role<'a>(status: &'a Value, name: &str) -> &'a Value {
    status["roles"].as_array().unwrap().iter().find(|role| role["name"] == name).unwrap_or(&Value::Null)
}

/// Whether a list has entries and all of them pass.
pub(crate) fn all(list: &Value, passes: impl FnMut(&Value) -> bool) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(passes))
}

/// One GET over a connection of its own.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(PATIENCE, asked).await.expect("diagnostics answer").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let code = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Answer { code, headers, body: body.to_owned() }
}
