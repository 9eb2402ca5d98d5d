//! The driver's record of calls, as `crates/sandbox/src/driver/record.rs` writes it. Pure.

use std::collections::HashMap;

use serde::Deserialize;

use super::time::{self, Time};

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rpc {
    /// Where its begin is in the record.
    pub(super) line: usize,
    pub(super) driver: String,
    pub(super) method: String,
    /// The caller, as far as a driver can tell one from the other: its connection to a process of the driver.
    pub(super) caller: (String, u64),
    pub(super) volume: Option<String>,
    pub(super) name: Option<String>,
    pub(super) node: Option<String>,
    pub(super) snapshot: Option<String>,
    /// What it changes.
    pub(super) changes: Vec<String>,
    /// What has to stay as it is meanwhile.
    pub(super) reads: Option<String>,
    /// Whether the driver was told to say something else than it does.
    pub(super) is_lie: bool,
    /// Before it had any effect.
    pub(super) begin: Time,
    /// When its caller stops waiting.
    pub(super) deadline: Option<Time>,
    /// What it has made, by ID, whether or not its caller was told.
    pub(super) made: Vec<String>,
    /// Before the answer left, and its code. `None`: the process died, or the record ends. It may have had an effect.
    pub(super) end: Option<(Time, String)>,
}

impl Rpc {
    /// When it was answered without an error.
    pub(super) fn ok(&self) -> Option<Time> {
        self.end.as_ref().filter(|(_, code)| code == "OK").map(|(at, _)| *at)
    }

    /// Its line in words.
    pub(super) fn words(&self) -> String {
        let about = [&self.volume, &self.name, &self.snapshot, &self.node].map(|it| it.as_deref().unwrap_or_default());
        let about: Vec<&str> = about.into_iter().filter(|it| !it.is_empty()).collect();
        let end = match &self.end {
            None => "no end".to_owned(),
            Some((at, code)) => format!("{code} {}", time::words(*at)),
        };
        format!("rpcs.log:{}: {} {} {}, {end}", self.line, time::words(self.begin), self.method, about.join(" "))
    }
}

#[derive(Deserialize)]
struct Line {
    process: String,
    call: u64,
    time: String,
    #[serde(flatten)]
    event: Event,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Begin(Box<Begin>),
    Made { made: Vec<String> },
    End { code: String },
}

#[derive(Deserialize)]
struct Begin {
    driver: String,
    method: String,
    connection: u64,
    volume: Option<String>,
    name: Option<String>,
    node: Option<String>,
    snapshot: Option<String>,
    changes: Vec<String>,
    reads: Option<String>,
    deadline: Option<String>,
    fault: Option<String>,
}

/// Reads a record. Its last line may be cut off.
pub(super) fn read(text: &str) -> Result<Vec<Rpc>, String> {
    let mut rpcs: Vec<Rpc> = Vec::new();
    let mut places = HashMap::new();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let Some(line) = line.strip_suffix('\n') else { break };
        let wrong = |why: String| format!("rpcs.log:{number} is no line of a driver's record: {why}: {line}");
        let Line { process, call, time, event } =
            serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        let at = time::parse(&time).map_err(wrong)?;
        if let Event::Begin(begin) = event {
            places.insert((process.clone(), call), rpcs.len());
            rpcs.push(Rpc {
                line: number,
                driver: begin.driver,
                method: begin.method,
                caller: (process, begin.connection),
                volume: begin.volume,
                name: begin.name,
                node: begin.node,
                snapshot: begin.snapshot,
                changes: begin.changes,
                reads: begin.reads,
                is_lie: begin.fault.is_some_and(|fault| fault.starts_with("Lie")),
                begin: at,
                deadline: begin.deadline.map(|it| time::parse(&it)).transpose().map_err(wrong)?,
                made: Vec::new(),
                end: None,
            });
            continue;
        }
        let begun = places.get(&(process, call)).map(|place: &usize| &mut rpcs[*place]);
        let begun = begun.ok_or_else(|| wrong("its call has no begin".to_owned()))?;
        match event {
            Event::Made { made } => begun.made = made,
            Event::End { code } => begun.end = Some((at, code)),
            Event::Begin(_) => {}
        }
    }
    Ok(rpcs)
}
