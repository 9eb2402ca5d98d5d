//! What is held to the rules when it ends: a driver on a control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::audit::{self, Write};
use super::{rpc, secrets, violations};

/// The name of a driver's record.
pub(crate) const RPCS: &str = "rpcs.log";
/// The name of an API server's audit log.
const AUDIT: &str = "audit.log";

/// What was read so far: many drivers share a control plane, and each line is read once.
static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Shared {
    /// How far each file was read: bytes and lines.
    files: BTreeMap<PathBuf, (u64, usize)>,
    /// What the audit log of each control plane says, by its folder.
    writes: BTreeMap<PathBuf, Vec<Write>>,
    secrets: BTreeSet<String>,
}

/// Remembers the value of a secret: from now on no record and no log may show it.
pub(crate) fn remember_secret(value: &[u8]) {
    let forms = std::str::from_utf8(value).map(secrets::forms).unwrap_or_default();
    SHARED.lock().unwrap_or_else(PoisonError::into_inner).secrets.extend(forms);
}

/// A driver. When this is dropped, its records are read: what breaks a rule fails the test, and the records stay.
pub(crate) struct Watched {
    /// The driver's name.
    pub(crate) driver: String,
    /// Whether it wants an expansion and a modification of one volume together.
    pub(crate) takes_pairs: bool,
    /// Its record. `None`: a driver that keeps none, of which only logs are read.
    pub(crate) rpcs: Option<PathBuf>,
    /// The folder of its control plane, with the audit log.
    pub(crate) cluster: PathBuf,
    /// More folders whose logs show no secret.
    pub(crate) logs: Vec<PathBuf>,
}

impl Watched {
    /// What is wrong, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut faults = shared.read_audit(&self.cluster);
        for folder in [&self.cluster].into_iter().chain(&self.logs) {
            for log in logs_in(folder) {
                faults.extend(shared.read_log(&log));
            }
        }
        let writes = shared.writes.get(&self.cluster).map(Vec::as_slice).unwrap_or_default();
        let Some(rpcs) = &self.rpcs else { return faults };
        // Who was never called has no record.
        let text = fs::read_to_string(rpcs).unwrap_or_default();
        match rpc::read(&text) {
            Err(wrong) => faults.push(wrong),
            Ok(rpcs) if rpcs.is_empty() => {
                // A rule about calls would hold if they went elsewhere.
                let done = writes.iter().find(|write| write.tells_of_a_call(&self.driver));
                faults.extend(done.map(|write| format!("the driver has recorded no call: {}", write.words())));
            }
            Ok(rpcs) => {
                faults
                    .extend(violations(&self.driver, self.takes_pairs, writes, &rpcs).iter().map(ToString::to_string));
            }
        }
        faults
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // What has failed already may have left anything.
        if std::thread::panicking() {
            return;
        }
        let faults = self.faults();
        assert!(
            faults.is_empty(),
            "the records of {} break rules of the CSI specification:\n{}\nThe records: {} and {:?}",
            self.driver,
            faults.join("\n"),
            self.cluster.join(AUDIT).display(),
            self.rpcs
        );
    }
}

impl Shared {
    /// Reads on in an audit log.
    fn read_audit(&mut self, cluster: &Path) -> Vec<String> {
        let path = cluster.join(AUDIT);
        let secrets: Vec<String> = self.secrets.iter().cloned().collect();
        let (text, first) = self.more(&path);
        let writes = self.writes.entry(cluster.to_owned()).or_default();
        let mut faults = Vec::new();
        for (number, line) in (first..).zip(text.lines()) {
            faults.extend(secrets::shown(AUDIT, number, line, &secrets).map(|it| it.to_string()));
            match audit::read(number, line) {
                Ok(read) => writes.extend(read),
                Err(wrong) => faults.push(wrong),
            }
        }
        faults
    }

    /// Reads on in a log.
    fn read_log(&mut self, path: &Path) -> Vec<String> {
        let secrets: Vec<String> = self.secrets.iter().cloned().collect();
        let (text, first) = self.more(path);
        let lines = (first..).zip(text.lines());
        let shown =
            lines.filter_map(|(number, line)| secrets::shown(&path.display().to_string(), number, line, &secrets));
        shown.map(|it| it.to_string()).collect()
    }

    /// The complete lines that were not read yet, and the number of the first.
    fn more(&mut self, path: &Path) -> (String, usize) {
        let (bytes, lines) = self.files.entry(path.to_owned()).or_insert((0, 1));
        let first = *lines;
        let mut more = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(*bytes))?;
            file.read_to_end(&mut more)
        });
        // A log that is not there says nothing.
        if read.is_err() {
            return (String::new(), first);
        }
        more.truncate(more.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
        *bytes += u64::try_from(more.len()).unwrap();
        let text = String::from_utf8_lossy(&more).into_owned();
        *lines += text.lines().count();
        (text, first)
    }
}

/// The logs in a folder and below, without the audit log.
fn logs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = entries.flat_map(|entry| {
        let path = entry.path();
        let is_log = path.extension().is_some_and(|it| it == "log") && !path.ends_with(AUDIT);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => logs_in(&path),
            Ok(kind) if kind.is_file() && is_log => vec![path],
            _ => Vec::new(),
        }
    });
    logs.collect()
}
