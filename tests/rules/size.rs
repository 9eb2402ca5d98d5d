//! How many lines of code each folder of `src` and each crate in `crates` has, a role's folder by itself. Comments, blank lines, tests and their fixtures
//! do not count.
//!
//! The numbers only fall: a change that makes a folder smaller lowers its number. A folder may grow if that is worth it to its
//! reader: then a `Growth` stands beside the number, with its reason.

use std::collections::BTreeMap;
use std::path::Path;

use super::layering::{code, files};

/// Lines, and what they are for.
struct Growth(usize, &'static str);

/// A folder may be so many lines smaller than the table says, so that small changes leave the table alone.
const SLACK: usize = 50;

/// The folder, its lines, which are never raised, and what has come since.
const SIZES: &[(&str, usize, &[Growth])] = &[
    (
        "",
        654,
        &[
            Growth(15, "the names that --lenient leaves out"),
            Growth(28, "the verb `demo-driver` and its options"),
            Growth(15, "`run` refuses the standard input, which it could not read again"),
            Growth(10, "the verb `orphans` and its options"),
        ],
    ),
    (
        "app",
        1876,
        &[
            Growth(9, "the API, and what a role works with, stand in the report"),
            Growth(12, "the right to watch the holder's pod"),
            Growth(148, "what of the CSIDriver object does not fit is told in four places"),
            Growth(47, "`check` says what of the CSIDriver object does not fit"),
            Growth(140, "`orphans` finds the leader and reads its status page"),
            Growth(27, "the RPCs that the driver gets fewer of at once are shown"),
            Growth(2, "which build this is stands beside the folders"),
            Growth(25, "a daemon whose roles work for all drivers connects to none"),
            Growth(20, "of a leader's pod only the ports are read: all fields of a pod are a fiftieth of the program"),
        ],
    ),
    ("cli", 140, &[]),
    (
        "base",
        1799,
        &[
            Growth(32, "bytes that are no text are told with their line"),
            Growth(23, "the signals that stop the daemon, which stood in main.rs"),
            Growth(141, "quantities, names of in-tree plugins and of gRPC codes, which stood in cluster and csi"),
            Growth(3, "locks that cannot be poisoned are another crate's"),
            Growth(18, "a key's duration is one type for serde and for the schema, which each key said twice"),
            Growth(
                9,
                "durations of the configuration are compared with their least one, which eleven sections did by themselves",
            ),
        ],
    ),
    (
        "cluster",
        7383,
        &[
            Growth(4, "an outage is told as a value"),
            Growth(1, "what an attach/detach controller keeps has an annotation"),
            Growth(65, "a search finds the claim of an object"),
            Growth(3, "only a client of the API gives a cache its answer"),
            Growth(41, "a CSIDriver has all fields that a role depends on"),
            Growth(3, "a kind that does not exist is told from one that cannot be read"),
            Growth(3, "a request without an answer may be done later"),
            Growth(4, "objects are found by a field"),
            Growth(20, "an Event that tells how things are is one, whichever process tells it"),
            Growth(8, "the node of a pod that uses claims"),
            Growth(480, "objects of other drivers are held as bytes, and come out as they went in"),
            Growth(56, "a walk over all objects, and what a list lacks, come in portions"),
            Growth(103, "what an attach/detach controller for all drivers reads of pods, volumes, nodes and drivers"),
            Growth(7, "which drivers are registered on a node"),
            Growth(117, "the watch goes on while the pages of a list are read, which kube's watcher does not do"),
            Growth(50, "subscribers are told of what is there in portions, with changes in between"),
            Growth(39, "an object of a cluster-scoped kind is looked up by a borrowed name"),
            Growth(5, "volumes of in-tree plugins are found by an index"),
            Growth(21, "a Lease is read where nobody leads by it"),
            Growth(35, "the next Event to write is found without a walk over all that are known"),
            Growth(
                18,
                "a change says what is gone with it, and what it is about, which ten triggers found out by themselves",
            ),
            Growth(
                86,
                "an event of a watch is read once its type is known: kube's way is a thirtieth of the program and hides errors",
            ),
            Growth(
                18,
                "names are compared eight bytes at once: musl does it byte by byte, a fifteenth of an attach's CPU time",
            ),
            Growth(9, "a bookmark without a version is refused"),
        ],
    ),
    (
        "config",
        1439,
        &[
            Growth(8, "a gate that is always on says whether that matters"),
            Growth(140, "each text that is no YAML is told with its line, and a number beyond 64 bits like any other"),
            Growth(9, "gates that the sidecars of Kubernetes 1.37 no longer take, and one that none has"),
            Growth(2, "the flags that pace the leader election, which three sidecars had by themselves"),
            Growth(18, "the fields that most tables of Go sidecars leave as they are, which each had by itself"),
        ],
    ),
    (
        "csi",
        1888,
        &[
            Growth(28, "a size and a class of one claim hold the lock of their volume together"),
            Growth(4, "a socket that is not reached in time is told apart from a silent driver"),
            Growth(4, "the two calls of volume health of CSI 1.13"),
            Growth(12, "what a driver can tell of the health of volumes"),
            Growth(510, "a driver that refuses calls gets fewer at once"),
            Growth(152, "the pages of a driver's list, and the one loop over them, which the kit and two roles had"),
            Growth(150, "one pass of ListVolumes at a time, which all roles share, and what is kept of a volume"),
            Growth(22, "the two questions that every driver answers, which the registrar had by itself"),
        ],
    ),
    (
        "diagnostics",
        1879,
        &[
            Growth(70, "each part of the daemon has a verdict of its own"),
            Growth(74, "the page says what is stopped, and why"),
            Growth(15, "what belongs to a found object is found with it"),
            Growth(22, "a table is printed as text by a command"),
            Growth(12, "a driver that no role needs"),
            Growth(16, "tables are written a few columns a row, and a fact has a function of its own"),
        ],
    ),
    (
        "election",
        1513,
        &[
            Growth(112, "a process names its container, and takes the Lease of the container's last process"),
            Growth(175, "a standby watches the pod of the holder for the end of its process"),
            Growth(28, "of that pod only the ends of its containers are read"),
        ],
    ),
    (
        "journal",
        1978,
        &[
            Growth(12, "the journal holds its client by itself, as the kit holds those of roles"),
            Growth(12, "another role reads the entries of a journal that it does not keep"),
            Growth(11, "and those of the journals of nodes"),
        ],
    ),
    (
        "migrate",
        3773,
        &[
            Growth(
                720,
                "each field of the replaced containers is weighed, and each note says what it asks of its reader",
            ),
            Growth(95, "the steps replace pods that an update strategy does not replace"),
            Growth(269, "annotations move with the container, and other objects that name it are found"),
            Growth(18, "a flag of csi-provisioner 2.0, and the calls that had the default deadline beside another's"),
        ],
    ),
    (
        "queue",
        1061,
        &[
            Growth(5, "a failure that waits longer counts as one"),
            Growth(5, "a role names the defaults of its back-off, which one role had by itself"),
        ],
    ),
    (
        "roles",
        403,
        &[
            Growth(1, "the container of this process"),
            Growth(87, "a role declares what it expects of the CSIDriver object"),
            Growth(3, "a feature asks for groups of fields"),
            Growth(14, "several rights are declared at once, and misfits are written a row a misfit"),
            Growth(8, "a role serves by an async function, whose future each had boxed by itself"),
        ],
    ),
    (
        "roles/attach_detach",
        1057,
        &[
            Growth(1454, "the role itself: what it reads, its requests for each step, and what it tells"),
            Growth(82, "it says what a pod waits for before its volume is known, and that it cannot list"),
            Growth(
                68,
                "what is reported to a node is gathered while more is on its way, the longer the longer pods have waited",
            ),
            Growth(
                71,
                "what the API may still delete is kept, and what a list does not tell of a node counts as in use",
            ),
            Growth(
                13,
                "a node wakes only the volumes that it says something else of, and objects are compared in place",
            ),
            Growth(13, "a PersistentVolume is compared with a volume without making its id"),
            Growth(11, "a node that gathers names is woken by the last of its volumes"),
            Growth(107, "it begins again once the kube-controller-manager that kept it away is gone, by its Lease"),
        ],
    ),
    (
        "roles/attacher",
        2128,
        &[
            Growth(26, "what of the CSIDriver object does not fit, with what to do"),
            Growth(1, "gates that v4.13 no longer takes"),
            Growth(7, "attachments are compared with the driver's list one by one"),
            Growth(4, "walks over all volumes leave other tasks their turn"),
        ],
    ),
    (
        "roles/kit",
        1101,
        &[
            Growth(
                730,
                "the loop, verbs, stores and memory that each role still has by itself: its row falls when it moves",
            ),
            Growth(52, "what is told before an attempt ends, and locks that a group holds: the resizer fell by 463"),
            Growth(13, "a verb that creates an object, a stage that admits a key, and the API for tasks without a key"),
            Growth(30, "a term makes the pass of ListVolumes that the roles share"),
            Growth(10, "a look at all objects leaves other tasks their turn"),
            Growth(19, "a verb that deletes an object only as it was seen"),
            Growth(19, "tasks begin when the triggers have been told of what is there"),
            Growth(
                58,
                "checks of keys, triggers that share something, and what a change means for a key, which five roles had",
            ),
            Growth(3, "a store says how far its watch has got"),
            Growth(4, "the first step of an attempt is decided from its first view"),
            Growth(8, "what is remembered is found by a hash, and told in the order of uids"),
            Growth(
                24,
                "what steps work with, what is counted of memories, which Events are due, and unknown values of a driver's volumes",
            ),
            Growth(
                10,
                "a namesake that the watch has not shown is a failure of the kit, which three roles had by themselves",
            ),
            Growth(
                2,
                "controllers give the resources of their term to all attempts, which thirteen reconcilers did by themselves",
            ),
            Growth(3, "a Warning is made, and an attempt waits as long as it may, in one call"),
            Growth(
                18,
                "tables, facts and failures are shown by functions of what a term shares, and not by closures of each role",
            ),
        ],
    ),
    (
        "roles/health_monitor",
        384,
        &[
            Growth(780, "the role itself: rounds, passes, and what it writes and tells"),
            Growth(75, "the table of its Go sidecar: flags, versions, and how it is recognised"),
            Growth(16, "a deadline and a queue of its own, and a fact that says why older Events cannot be read"),
            Growth(60, "conditions in the list of all volumes, which the role shares"),
            Growth(370, "nodes that fail, the pods on them, and what is told on their claims"),
            Growth(27, "older Events that cannot be read are read again"),
            Growth(1, "it says that it needs a driver"),
            Growth(1, "walks over all volumes leave other tasks their turn"),
        ],
    ),
    ("roles/liveness", 427, &[Growth(10, "a failed check counts, and says its age")]),
    (
        "roles/provisioner",
        9342,
        &[
            Growth(25, "two gates of csi-provisioner that manifests switch off are keys"),
            Growth(30, "each set of topology keys counts, and what its nodes lack is named"),
            Growth(63, "what of the CSIDriver object does not fit, with what to do"),
            Growth(
                56,
                "capacity and nodes have views, answers and memories of their own, and one request for each step",
            ),
            Growth(
                104,
                "so have claims: the forerunner of the kit's loop went with 175 lines, and with it its locks and sets",
            ),
            Growth(
                121,
                "capacities are asked for again where any program changes volumes, each at its pace, and their age is measured",
            ),
            Growth(2, "walks over all claims leave other tasks their turn"),
        ],
    ),
    (
        "roles/reconciler",
        170,
        &[
            Growth(595, "orphans: what the driver lists and nothing knows, with what knows it, and what is told"),
            Growth(37, "a volume is in doubt only while a request is open that may have made it"),
            Growth(1, "it says that it needs a driver"),
            Growth(8, "walks over all that is listed and known leave other tasks their turn"),
        ],
    ),
    ("roles/registrar", 1532, &[]),
    (
        "roles/resizer",
        2882,
        &[
            Growth(2, "client-go's metrics, which v2.3 serves and the daemon does not"),
            Growth(13, "an infeasible change shows its tries and the words of the driver"),
            Growth(1, "gates that v2.3 no longer takes"),
        ],
    ),
    (
        "roles/snapshotter",
        5079,
        &[Growth(4, "a snapshot that waits counts its tries"), Growth(1, "gates that v8.7 no longer takes")],
    ),
    (
        "sandbox",
        15670,
        &[
            Growth(18, "an attributes class is held while a claim or a volume names it"),
            Growth(515, "the demo driver keeps its volumes in a folder, and mounts them beside real kubelets"),
            Growth(3, "a missing socket is told by the last answer about it"),
            Growth(67, "kubectl shows snapshots and groups with the columns of their definitions"),
            Growth(24, "a claim of a class that does not exist has its Event"),
            Growth(117, "the demo takes a group of snapshots and deletes it"),
            Growth(4, "the demo ends beside a daemon that has taken its Leases"),
            Growth(10, "a daemon in a container of a pod"),
            Growth(76, "the demo driver records its calls in a file, without their secrets"),
            Growth(4, "the demo's CSIDriver is there before the daemon"),
            Growth(13, "the demo driver refuses the calls of CSI 1.13 that it does not have"),
            Growth(41, "what a type declares is judged last and in other words, as in Kubernetes 1.37"),
            Growth(102, "the demo driver tells the health of its volumes, which turn unhealthy and back"),
            Growth(63, "the API stores the health of claims by the rules of 1.37, if it is told to"),
            Growth(10, "the demo driver refuses what it has not room for"),
            Growth(3, "an answer of the demo driver about one volume may lack its status"),
            Growth(25, "a call that is about nothing yet, which the tests of the simulation made by themselves"),
            Growth(2, "the schema of a reference to an object is written once"),
        ],
    ),
    (
        "telemetry",
        1538,
        &[
            Growth(2, "what of the CSIDriver object does not fit is counted"),
            Growth(2, "the limit of an RPC"),
            Growth(23, "a series is registered once, however often it is asked for"),
            Growth(29, "gauges of a term, which the journal and three parts of the provisioner had by themselves"),
        ],
    ),
    ("translation", 1046, &[Growth(1, "a volume of another driver has its handle")]),
];

/// The row of a file: its first folder, or its role's. The files of `src` itself are one row, and those of `src/roles` another.
fn folder(file: &Path) -> String {
    let folders: Vec<&str> = file.parent().into_iter().flatten().map(|part| part.to_str().unwrap()).collect();
    let depth = if folders.first() == Some(&"roles") { 2 } else { 1 };
    folders[..depth.min(folders.len())].join("/")
}

fn sizes() -> BTreeMap<String, usize> {
    let mut sizes = BTreeMap::new();
    for (name, path) in files().iter().filter(|(name, _)| !name.ends_with("fixtures.rs")) {
        let lines = code(path).lines().filter(|line| !line.trim().is_empty()).count();
        *sizes.entry(folder(Path::new(name))).or_default() += lines;
    }
    sizes
}

/// What is wrong with a folder's row.
fn fault(folder: &str, lines: usize, row: Option<&(&str, usize, &[Growth])>) -> Option<String> {
    let Some((_, first, growth)) = row else {
        return Some(format!("{folder:?} has {lines} lines and no row"));
    };
    let table = first + growth.iter().map(|Growth(lines, _)| lines).sum::<usize>();
    if let Some(Growth(lines, reason)) = growth.iter().find(|Growth(_, reason)| reason.split(' ').count() < 4) {
        return Some(format!("{folder:?}: {reason:?} is no reason for {lines} lines"));
    }
    if lines > table {
        let more = lines - table;
        return Some(format!(
            "{folder:?} has {lines} lines, {more} more than its row: make it smaller, or say what they are for"
        ));
    }
    (lines + SLACK < table).then(|| format!("{folder:?} has {lines} lines, and its row {table}: lower the row"))
}

#[test]
fn folders_do_not_grow_without_a_reason() {
    let sizes = sizes();
    let row = |folder: &str| SIZES.iter().find(|(name, ..)| *name == folder);
    let mut faults: Vec<_> = sizes.iter().filter_map(|(folder, lines)| fault(folder, *lines, row(folder))).collect();
    faults.extend(
        SIZES.iter().filter(|(name, ..)| !sizes.contains_key(*name)).map(|(name, ..)| format!("{name:?} is gone")),
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_row_holds_its_folder_from_both_sides() {
    let row = ("queue", 100, &[Growth(20, "lanes of their own for deletions")][..]);
    for (lines, words) in [(120, None), (70, None), (121, Some("1 more than its row")), (69, Some("lower the row"))] {
        let told = fault("queue", lines, Some(&row));
        assert_eq!(told.is_some(), words.is_some(), "{lines}: {told:?}");
        assert!(words.is_none_or(|words| told.unwrap().contains(words)), "{lines}");
    }
    assert!(fault("queue", 0, None).is_some(), "a new folder needs a row");
    assert!(fault("queue", 100, Some(&("queue", 100, &[Growth(9, "lanes")]))).is_some(), "a word is no reason");
    assert_eq!(folder(Path::new("roles/resizer/expand/policy.rs")), "roles/resizer");
    assert_eq!(folder(Path::new("roles/role.rs")), "roles");
    assert_eq!(folder(Path::new("lib.rs")), "");
}
