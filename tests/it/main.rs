//! The daemon with an API and a driver around it, on a simulated network. Time passes only while all of them are idle.
//! With `GROUND=cluster` the same scenarios are played on a real control plane, on real sockets and in real time: `just cluster`.
//!
//! | module | what it plays |
//! |---|---|
//! | [`attach`] | attach and detach as users see them; every kind of volume and access mode |
//! | [`attach_detach`] | pods that get their volumes by the daemon itself, and that it keeps away from another such controller |
//! | [`claims`] | claims of every kind, with the controllers that bind them |
//! | [`deadlines`] | the deadlines of calls to the driver, of all roles and of one |
//! | [`drift`] | attachments that the driver lost or created outside Kubernetes |
//! | [`driver`] | a driver that is late, dies, comes back, or comes back as less |
//! | [`driver_object`] | the driver's `CSIDriver` object, and what of it does not fit |
//! | [`errors`] | status, Events, status page and metrics of failures; back-off |
//! | [`examples`] | the files of deploy/examples, as a person applies them |
//! | [`failures`] | an API that restarts, forgets, cannot be reached or forbids; drivers, Leases and namesakes; and what must hold after each |
//! | [`found`] | what a search on the status page finds |
//! | [`leading`] | leases: who may work, and when |
//! | [`migrated`] | volumes of in-tree plugins beside the drivers that have taken the plugins over |
//! | [`nodes`] | node ids, and nodes that come and go |
//! | [`provision_across`], [`provision_claims`], [`provision_deletion`], [`provision_kept`], [`provision_leaks`], [`provision_owed`], [`provision_secrets`], [`provision_sources`], [`provision_sources_unseen`], [`provision_topology`], [`provision_twins`] | claims that become volumes, and volumes that go with them, by what could go wrong |
//! | [`provision_journal`] | the journal of requests without a final answer: its objects, and all that can happen to them |
//! | [`provision_journal_faults`] | a journal that cannot be read or written |
//! | [`provision_failures`] | the failures of [`failures`] while claims come and go; and what must hold after each |
//! | [`provision_nodes`], [`provision_nodes_gone`], [`provision_nodes_room`], [`provision_nodes_told`], [`provision_nodes_volumes`] | a daemon and a driver on each node: who provisions, who deletes, what becomes of a lost node's claims, who tells of room and of claims, who lets go of volumes |
//! | [`health`], [`health_kept`], [`health_shared`] | volumes that are not healthy: Events, the status of claims where the server stores it, the list that two roles share, and nodes that fail |
//! | [`reload`] | another configuration while the daemon works |
//! | [`resize`], [`resize_around`], [`resize_quota`], [`modify`] | claims that grow, and claims that change their attributes class |
//! | [`secrets`] | publish secrets |
//! | [`supplies`] | that the cluster around claims is as [`supply`] takes for granted |
//! | [`taking_over`] | leases whose holder has provably ended |
//! | [`volumes`] | the finalizer on volumes |
//! | [`sandbox_only`] | faults of the API, its audit log, rights, traces |
//! | [`rows`], [`provision_rows`], [`provision_seen`], [`resize_rows`], [`snapshot_rows`], [`snapshot_holes`], [`node_rows`], [`health_rows`], [`attach_detach_rows`] | the regression lists, row by row, and where each row is proven |
//!
//! Beside them, in the same executable, as one more costs more to link than it is worth:
//!
//! | module | what it is |
//! |---|---|
//! | [`process`] | `tests/process`: the binary as a process of its own |
//! | [`records`] | `tests/records`: what holds of every test on a real control plane, by its records |
//! | [`conformance`] | `tests/conformance`: what a kube-apiserver answers, asked of either |
//! | [`accounts`], [`control_plane`], [`kinds`], [`programs`], [`shared`], [`tls`] | of `tests/cluster`: the real control plane |
//!
//! [`world`] is all that a scenario may use, with [`balance`], [`burst`], [`cable`], [`journal`], [`load`], [`rights`], [`supply`], [`supplier`], [`resizing`], [`monitoring`] and [`attaching`]; [`ground`] is where it comes from. Times are configured
//! short, and every wait is for a condition, with a bound of simulated time. The one sleep is the outage in [`cable`]: nothing shall happen in it, so
//! there is nothing to wait for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

#[path = "../cluster/accounts.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests that are never played here")]
mod accounts;
mod attach;
mod attach_detach;
mod attach_detach_rows;
mod attaching;
mod balance;
mod burst;
mod cable;
mod claims;
#[path = "../conformance/mod.rs"]
mod conformance;
#[path = "../cluster/control_plane.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests that are never played here")]
mod control_plane;
mod deadlines;
mod drift;
mod driver;
mod driver_object;
mod errors;
mod examples;
mod failures;
mod found;
mod ground;
mod grouping;
mod health;
mod health_kept;
mod health_rows;
mod health_shared;
mod http;
mod journal;
#[path = "../cluster/kinds.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests that are never played here")]
mod kinds;
mod leading;
mod load;
mod logs;
mod migrated;
mod modify;
mod monitoring;
mod node_rows;
mod nodes;
mod objects;
#[path = "../process/mod.rs"]
mod process;
#[path = "../cluster/programs.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests that are never played here")]
mod programs;
mod provision_across;
mod provision_claims;
mod provision_deletion;
mod provision_failures;
mod provision_journal;
mod provision_journal_faults;
mod provision_kept;
mod provision_leaks;
mod provision_nodes;
mod provision_nodes_gone;
mod provision_nodes_room;
mod provision_nodes_told;
mod provision_nodes_volumes;
mod provision_owed;
mod provision_rows;
mod provision_secrets;
mod provision_seen;
mod provision_sources;
mod provision_sources_unseen;
mod provision_topology;
mod provision_twins;
#[path = "../records/mod.rs"]
mod records;
mod reload;
mod resize;
mod resize_around;
mod resize_quota;
mod resize_rows;
mod resizing;
mod rights;
mod rows;
mod sandbox_only;
mod secrets;
#[path = "../cluster/shared.rs"]
#[allow(dead_code, reason = "some are for the tests that are never played here")]
mod shared;
mod snapshot_around;
mod snapshot_cuts;
mod snapshot_deletions;
mod snapshot_holes;
mod snapshot_leaks;
mod snapshot_readiness;
mod snapshot_rows;
mod snapshotting;
mod supplier;
mod supplies;
mod supply;
mod taking_over;
#[path = "../cluster/tls.rs"]
mod tls;
mod volumes;
mod world;
