//! The defaults of the sidecars' versions, in the configuration. Pure.

use std::net::SocketAddr;

use serde_json::json;

use crate::config::defaults::Kept;
use crate::config::flags::Flag;
use crate::config::{self, Config, File, Sources};
use crate::process::duration;
use crate::roles::sections;
use crate::roles::sidecars::leads;

use super::file;
use super::found::Found;
use super::notes::Notes;
use super::report::listed;
use super::settle::Chosen;
use super::version::Release;

/// Writes the defaults of the sidecars' own versions where the daemon has others, because the workload may depend on
/// them. Where the version is not known, a note says what it may have been.
pub(super) fn keep(chosen: &mut Vec<Chosen>, found: &mut Found, notes: &mut Notes) {
    let ours = ours(&found.roles);
    for source in &found.sources {
        let Some(told) = found.told.iter_mut().find(|told| told.name == source.container) else { continue };
        let name = source.sidecar.name;
        let mut unknown = Vec::new();
        for old in source.sidecar.defaults {
            let is_given = told.flags.iter().any(|line| {
                let bare = line.given.trim_start_matches('-');
                bare.strip_prefix(old.flag.trim_start_matches('-'))
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ' ']))
            });
            let ours = match old.kept {
                Kept::Key(key) => ours.pointer(&format!("/{}", key.replace('.', "/"))).cloned(),
                Kept::Never(_) => Some(json!(true)),
            };
            let Some(ours) = ours.filter(|_| !is_given) else { continue };
            let Some(since) = source.release.default(old) else {
                unknown.push(match old.kept {
                    Kept::Key(key) => format!("{} ({}; {key} is {ours})", old.flag, old.history()),
                    Kept::Never(_) => format!("{} ({}; always on here)", old.flag, old.history()),
                });
                continue;
            };
            let theirs = since.value.json();
            if theirs == ours {
                continue;
            }
            let when = old.changed_after(since.version).map(|next| format!(" before {next}")).unwrap_or_default();
            let this = source.release.tag().map(|tag| format!(" (this is {tag})")).unwrap_or_default();
            let default = format!("{} is {} by default in {name}{when}{this}", old.flag, since.value);
            match old.kept {
                Kept::Key(key) if !chosen.iter().any(|one| one.key == key) => {
                    told.defaults.push(format!("{default}; {key} is {theirs}, as it was"));
                    let because = format!("{}: {default}", source.container);
                    chosen.push(Chosen { key: key.to_owned(), value: theirs, because });
                }
                Kept::Key(_) => {}
                Kept::Never(what) => told.defaults.push(format!("{default}; here it is always on: {what}")),
            }
        }
        if !unknown.is_empty() {
            let why = match &source.release {
                Release::Unknown(why) => format!("the version is not known ({why})"),
                Release::Known(_) => "the tag names no minor version".to_owned(),
            };
            notes.check(format!(
                "{}: {why}; say it with --assume, or compare the defaults of yours with the configuration: {}",
                source.container,
                unknown.join(", ")
            ));
        }
    }
}

/// Keeps leader election off where the pods of a `DaemonSet` work side by side, each with the driver of its own node: one leader would
/// ask that of its node alone. A sidecar that has a flag for one per node, and does not use it, is meant to be one.
pub(super) fn side_by_side(chosen: &mut Vec<Chosen>, found: &Found, notes: &mut Notes) {
    const KEY: &str = "leaderElection.enabled";
    let leading: Vec<_> = found.sources.iter().filter(|it| leads(it.sidecar) && !it.is_per_node()).collect();
    let is_meant_to_lead = leading.iter().any(|it| it.sidecar.per_node.is_some());
    let is_said = chosen.iter().any(|one| one.key == KEY);
    if found.workload.kind != "DaemonSet" || leading.is_empty() || is_meant_to_lead || is_said {
        return;
    }
    let names: Vec<&str> = leading.iter().map(|source| &*source.container).collect();
    let names = listed(&names, "and");
    notes.check(format!(
        "{names}: no leader election in a DaemonSet, so that each pod asks the driver of its own node, and so it stays; set {KEY} to true \
         if the driver serves all volumes from any node"
    ));
    let because = format!("{names}: no --leader-election, in a DaemonSet");
    chosen.push(Chosen { key: KEY.to_owned(), value: json!(false), because });
}

/// The configuration of these roles with every key at its default.
fn ours(roles: &[&'static str]) -> serde_json::Value {
    let text = file::configuration(&[], roles, "nothing");
    let file = File { name: file::NAME.to_owned(), text };
    let loaded = config::load(&Sources { file: Some(file), ..Sources::default() }, &sections());
    loaded.map(|loaded| loaded.effective()).unwrap_or_default()
}

/// Reports flags that were not set and have another default here. What several sidecars have in common is told once.
pub(super) fn tell(chosen: &[Chosen], listen: SocketAddr, found: &mut Found, notes: &mut Notes) {
    let is_chosen = |key: &str| chosen.iter().any(|one| one.key == key);
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for source in &found.sources {
        let mut told = Vec::new();
        let (theirs, ours) = (source.sidecar.timeout, Config::default().csi.timeout);
        let key = source.sidecar.flag("timeout").and_then(Flag::key);
        if !theirs.is_zero() && theirs != ours && key.is_none_or(|key| source.setting(key).is_none()) {
            let [theirs, ours] = [theirs, ours].map(duration::format);
            // Where some calls have a deadline of their own, the others of them had the default all the same.
            let is_given = |flag: &str| {
                let key = source.sidecar.flag(flag).and_then(Flag::key);
                key.is_some_and(|key| source.setting(key).is_some())
            };
            let own = source.sidecar.overruled.iter().filter(|(_, by)| *by == "timeout").map(|(flag, _)| *flag);
            let (given, missing): (Vec<&str>, Vec<&str>) = own.partition(|flag| is_given(flag));
            match &missing[..] {
                [flag, ..] if !given.is_empty() => {
                    told.push(format!("--timeout and --{flag} were {theirs}; csi.timeout is {ours}"));
                }
                _ => told.push(format!("--timeout was {theirs}; csi.timeout is {ours}")),
            }
        }
        if leads(source.sidecar) && !source.is_per_node() && !is_chosen("leaderElection.enabled") {
            told.push("--leader-election was off; leaderElection.enabled is true".to_owned());
        }
        // The flag may be another key than the diagnostics', and was not off all the same.
        let lines = found.told.iter().filter(|one| one.name == source.container).flat_map(|one| &one.flags);
        let mut given = lines.map(|line| line.given.trim_start_matches('-'));
        if source.setting("diagnostics.listen").is_none() && !given.any(|given| given.starts_with("http-endpoint")) {
            told.push(format!("--http-endpoint was off; diagnostics.listen is {listen}"));
        }
        if !is_chosen("csi.maxLogLength") {
            told.push("--max-grpc-log-length had no limit; csi.maxLogLength is 8192".to_owned());
        }
        for text in told {
            match all.iter_mut().find(|(known, _)| *known == text) {
                Some((_, containers)) => containers.push(&source.container),
                None => all.push((text, vec![&source.container])),
            }
        }
    }
    for (text, containers) in all {
        if let [only] = containers.as_slice() {
            if let Some(container) = found.told.iter_mut().find(|container| container.name == *only) {
                container.defaults.push(text);
            }
        } else {
            notes.know(format!("{text} (default of {})", containers.join(", ")));
        }
    }
}
