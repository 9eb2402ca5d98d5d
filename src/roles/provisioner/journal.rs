//! The provisioner's journal: where it is, how a term opens it, and its part of the status page.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use tracing::error;

use crate::cluster::rbac::Rule;
use crate::diagnostics::{Cell, Fact, Table, table};
use crate::election::Term;
use crate::journal::{self, Content, Journal, LeftReason, LeftRow, Opened, Place, Row};
use crate::process::ErrorChain;
use crate::queue::{Backoff, WorkQueue};
use crate::roles::kit::TermScope;
use crate::roles::provisioner::claim::ClaimKey;
use crate::roles::provisioner::claims::entry::Entry;
use crate::roles::provisioner::names;
use crate::roles::role::RoleContext;
use crate::telemetry::TermGauge;
use crate::telemetry::names::JOURNAL_UNREADABLE;

impl Content for Entry {
    fn subject(&self) -> String {
        format!("claim {}, volume {}", self.key(), volume_of(self))
    }
}

/// Where the journal is. `node`: with node deployment, each node has its own journal.
pub(super) fn place(namespace: &str, driver: &str, node: Option<&str>) -> Place {
    let stem = names::lease(driver);
    let place = Place { namespace: namespace.to_owned(), stem, driver: driver.to_owned(), node: None };
    node.map_or_else(|| place.clone(), |node| place.of_node(node))
}

/// The rights that the journal needs.
pub(super) fn rules(driver: Option<&str>) -> Vec<Rule> {
    journal::rules(driver.map(names::lease).as_deref(), false)
}

/// The rights that the journal needs with node deployment.
pub(super) fn rules_per_node(_: Option<&str>) -> Vec<Rule> {
    journal::rules(None, true)
}

/// The daemon's own namespace.
pub(super) fn namespace(role: &RoleContext) -> String {
    role.instance.namespace.clone().unwrap_or_default()
}

/// Opens the journal, and tries again with back-off until it succeeds: without the journal no claim is provisioned. `None`: the
/// term is over.
pub(super) async fn open(
    role: &RoleContext,
    term: &Term,
    node: Option<&str>,
    backoff: Backoff,
) -> Option<(Journal<Entry>, Vec<Opened<Entry>>)> {
    let place = place(&namespace(role), &role.driver.name, node);
    // The term has not looked at the claims yet, so their own metrics say nothing.
    let unreadable = TermGauge::new(&role.meter, &JOURNAL_UNREADABLE, &[("driver_name", &role.driver.name)]);
    let scope = TermScope::new(role, term);
    for failures in 1.. {
        let opening = scope.open_journal(place.clone());
        let problem = match term.unless_over(opening).await.ok()? {
            Ok(opened) => return Some(opened),
            Err(problem) => problem,
        };
        unreadable.set(1.0);
        let text = ErrorChain(&problem).to_string();
        error!(error = text, "cannot open the journal: no claim is provisioned until it can be read");
        let _shown =
            role.board.facts(super::NAME, move || vec![Fact::new("journal", format!("cannot be read: {text}"))]);
        let wait = backoff.delay(failures, None, role.rng.fraction());
        term.unless_over(tokio::time::sleep(wait)).await.ok()?;
    }
    None
}

/// The status page's line about the journal as a whole.
pub(super) fn facts(journal: &Journal<Entry>) -> Vec<Fact> {
    let status = journal.status();
    let entries = journal.len();
    let maps = if status.segments == 1 { "ConfigMap" } else { "ConfigMaps" };
    let mut value = format!("{entries} entries, {} bytes in {} {maps}", status.bytes, status.segments);
    if status.is_full {
        value.push_str("; it is full: new claims wait until the driver has given more final answers");
    }
    let left = journal.left().len();
    if left > 0 {
        let _ = write!(value, "; {left} more are left alone: see the table of volumes that may be left over");
    }
    if let Some(fault) = status.fault {
        value = format!("{value}; the last read or write failed: {fault}");
    }
    vec![Fact::new("journal", value)]
}

/// The status page's table of entries.
pub(super) const TABLE: Table = table! {
    "journal", "Journal":
        text("claim", "claim"), text("volume", "volume"), seconds("ageSeconds", "age"),
        count("failedTries", "failed tries"), error("lastError", "last error")
};

/// The status page's table of entries that the daemon does not act on.
pub(super) const LEFT_TABLE: Table = table! {
    "leftOverVolumes", "Volumes that may be left over":
        text("claim", "claim"), text("volume", "volume"), seconds("ageSeconds", "age"),
        text("why", "why it is left alone"), text("whatToDo", "what to do")
};

/// The entries that the daemon does not act on, the oldest first.
pub(super) fn left_rows(journal: &Journal<Entry>, now: Timestamp) -> Vec<Vec<Cell>> {
    let row = |LeftRow { segment, entry, because }: LeftRow<Entry>| {
        let why = match because {
            LeftReason::Unproven => "its claim is gone, and nothing proves that no PersistentVolume was stored for it",
            LeftReason::Appeared => "it has appeared in the journal, and no daemon has written it",
            LeftReason::Foreign => "it is a copy: it was not written for this ConfigMap",
        };
        left_row(Some((entry.at, &entry.content)), now, why.to_owned(), journal::remedy(&segment, &entry.key))
    };
    journal.left().into_iter().map(row).collect()
}

/// A row of [`LEFT_TABLE`]. `entry`: `None` if the journal's value cannot be read.
pub(super) fn left_row(entry: Option<(Timestamp, &Entry)>, now: Timestamp, why: String, remedy: String) -> Vec<Cell> {
    let age = entry.map(|(at, _)| Duration::try_from(now.duration_since(at)).unwrap_or_default());
    let entry = entry.map(|(_, entry)| entry);
    vec![
        entry.map(|entry| entry.key().to_string()).into(),
        entry.map(volume_of).into(),
        age.into(),
        why.into(),
        remedy.into(),
    ]
}

/// The volume of an entry: the driver's id if it is known, or the name that the driver was given.
pub(super) fn volume_of(entry: &Entry) -> String {
    entry.discarding.clone().unwrap_or_else(|| entry.request.volume_name.clone())
}

/// The entries, the oldest first.
pub(super) fn rows(journal: &Journal<Entry>, claims: &WorkQueue<ClaimKey>) -> Vec<Vec<Cell>> {
    let queued = claims.snapshot();
    let row = |entry: Row<Entry>| {
        let key = entry.content.key();
        let item = queued.iter().find(|item| item.key == key);
        vec![
            key.to_string().into(),
            entry.content.request.volume_name.clone().into(),
            entry.age.into(),
            item.map_or(0, |item| item.attempts).into(),
            item.and_then(|item| item.note.clone()).into(),
        ]
    };
    journal.entries().into_iter().map(row).collect()
}
