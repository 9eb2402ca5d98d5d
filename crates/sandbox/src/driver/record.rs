//! The record of calls in a file, for those who hold them beside an API server's audit log: a line of JSON when a call begins, when it has
//! made something, and when it ends.
//!
//! A line is there before what follows from it: a begin before the call has any effect, an end before its answer leaves. So a call without
//! an end may have had an effect, whatever became of the process. Several processes may share the file: each line is one write.
//!
//! Secrets are not in it: requests print theirs as stripped.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::calls::Call;

/// The begin of a call. `changes` is what it changes, and `reads` what has to stay meanwhile.
pub(super) fn begin(
    call: &Call,
    driver: &str,
    changes: &[String],
    reads: Option<&str>,
    request: &dyn Debug,
    now: Timestamp,
) -> Value {
    let left = call.deadline.map(|deadline| deadline.saturating_sub(call.started));
    let deadline = left.and_then(|left| now.checked_add(SignedDuration::try_from(left).ok()?).ok());
    json!({
        "event": "begin", "driver": driver, "method": call.method, "connection": call.connection,
        "volume": call.volume, "name": call.name, "node": call.node, "snapshot": call.snapshot,
        "changes": changes, "reads": reads, "deadline": deadline.map(|it| it.to_string()),
        "fault": call.fault.as_ref().map(|fault| format!("{fault:?}")), "request": format!("{request:?}"),
    })
}

/// What a call has made, by the IDs that its answer gives it. A caller that has given up may never hear of it.
pub(super) fn made(ids: &[String]) -> Value {
    json!({"event": "made", "made": ids})
}

/// The end of a call: the name of its gRPC code, or `Abandoned`.
pub(super) fn end(outcome: &str) -> Value {
    json!({"event": "end", "code": outcome})
}

/// Adds the line of a call. `process` is this process's, and `call` its number there.
pub(super) fn append(file: &Path, process: &str, call: u64, now: Timestamp, mut line: Value) -> io::Result<()> {
    line["time"] = now.to_string().into();
    line["process"] = process.into();
    line["call"] = call.into();
    File::options().create(true).append(true).open(file)?.write_all(format!("{line}\n").as_bytes())
}
