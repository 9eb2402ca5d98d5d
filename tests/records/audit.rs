//! The API server's audit log: the writes that succeeded, each with the object that came of it, and those that nobody was told the end of.
//! Pure.
//!
//! A write took effect between the stamps of its request and of its answer. Where the answer is small, its client cannot have had it before
//! the second stamp: Go's HTTP server keeps up to 2 KiB of an answer (4 KiB with HTTP/2) until the handler returns, and the audit filter
//! is a part of the handler.

use serde_json::Value;

use super::time::{self, Time};

/// An answer of this size was not sent before the stamp of its end.
const SENT_AT_ONCE: usize = 2048;
/// What a service account's name begins with. Those are the controllers that are held to the rules; people and tests may do as they like.
const ACCOUNT: &str = "system:serviceaccount:";
/// The annotation of an attachment for its node's ID at the driver.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
/// The annotation of an attachment for the volume that it was published as.
const VOLUME_HANDLE: &str = "csi-control-plane.io/volume-handle";

/// The kinds that the rules are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Volume,
    Attachment,
    Claim,
    Snapshot,
    Group,
    /// A ConfigMap of a journal.
    Journal,
    /// An Event that names what may be left at the driver.
    Left,
}

impl Kind {
    fn of(resource: &str) -> Option<Self> {
        Some(match resource {
            "persistentvolumes" => Self::Volume,
            "volumeattachments" => Self::Attachment,
            "persistentvolumeclaims" => Self::Claim,
            "volumesnapshotcontents" => Self::Snapshot,
            "volumegroupsnapshotcontents" => Self::Group,
            "configmaps" => Self::Journal,
            "events" => Self::Left,
            _ => return None,
        })
    }
}

/// What an object says, as far as the rules look at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) finalizers: Vec<String>,
    pub(super) is_deleting: bool,
    /// Its driver.
    pub(super) driver: String,
    /// What it names at the driver: a volume, a snapshot, a group. An attachment of an inline volume names that volume; one that says which
    /// volume it was for, that one.
    pub(super) handle: Option<String>,
    /// Whether its volume, snapshot or group is kept when it goes.
    pub(super) is_retained: bool,
    /// The node of an attachment, by the ID that the driver gave it.
    pub(super) node: Option<String>,
    /// Whether an attachment says that its volume is attached.
    pub(super) is_attached: bool,
    /// The PersistentVolume of an attachment.
    pub(super) volume: Option<String>,
    /// The uid of the snapshot or group that a content is for.
    pub(super) of: Option<String>,
    /// The entries of a journal; the message of an Event.
    pub(super) text: String,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    /// Where it is in the log.
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// The name, after its namespace.
    pub(super) name: String,
    pub(super) uid: String,
    /// The version of the object that came of it.
    pub(super) version: u64,
    /// No effect came before.
    pub(super) from: Time,
    /// All effect had come by then.
    pub(super) to: Time,
    /// Its writer may have had the answer since then.
    pub(super) known: Time,
    pub(super) user: String,
    pub(super) verb: String,
    /// Whether it had an effect. A server may have stored what it could not answer: its client was killed, or etcd was slow.
    pub(super) is_certain: bool,
    /// The object that came of it. `None`: it is gone. Of what is not certain: only what it set.
    pub(super) object: Option<Object>,
}

impl Write {
    /// Whether a controller wrote it.
    pub(super) fn is_a_controllers(&self) -> bool {
        self.user.starts_with(ACCOUNT)
    }

    /// Whether a controller has written a volume that only the answer to a call can have given it.
    pub(super) fn tells_of_a_call(&self, driver: &str) -> bool {
        let is_made = self.kind == Kind::Volume && self.verb == "create" && self.is_a_controllers();
        is_made && self.object.as_ref().is_some_and(|it| it.driver == driver)
    }

    /// Its line in words.
    pub(super) fn words(&self) -> String {
        let Self { line, verb, kind, name, user, .. } = self;
        let what = match &self.object {
            None => "gone".to_owned(),
            Some(object) => format!("finalizers {:?}", object.finalizers),
        };
        let (from, to) = (time::words(self.from), time::words(self.to));
        format!("audit.log:{line}: {from} to {to} {verb} {kind:?} {name} by {user}: {what}")
    }
}

/// Reads one line: the writes that it tells of. A collection may go at once.
pub(super) fn read(number: usize, line: &str) -> Result<Vec<Write>, String> {
    let wrong = |why: String| format!("audit.log:{number}: {why}: {line}");
    let event: Value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
    let text = |at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let Some(kind) = Kind::of(text("/objectRef/resource")) else { return Ok(Vec::new()) };
    let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
    let (has_succeeded, may_have) = ((200..300).contains(&code), code >= 500);
    let is_dry = text("/requestURI").contains("dryRun=");
    // What is below an object, and is no part of it: the binding of a pod, a token.
    let is_apart = !["", "status"].contains(&text("/objectRef/subresource"));
    if text("/stage") != "ResponseComplete" || !(has_succeeded || may_have) || is_dry || is_apart {
        return Ok(Vec::new());
    }
    let verb = text("/verb");
    // Of an Event, only what was sent is in the log.
    let response = &event[if kind == Kind::Left || may_have { "requestObject" } else { "responseObject" }];
    if kind == Kind::Left && !response["reason"].as_str().is_some_and(|it| it.ends_with("MaybeLeaked")) {
        return Ok(Vec::new());
    }
    let from = time::parse(text("/requestReceivedTimestamp")).map_err(wrong)?;
    let to = time::parse(text("/stageTimestamp")).map_err(wrong)?;
    let written = |answer: &Value| {
        let own = |at: &str| answer.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let namespace = own("/metadata/namespace").unwrap_or_else(|| text("/objectRef/namespace").to_owned());
        let name = own("/metadata/name").unwrap_or_else(|| text("/objectRef/name").to_owned());
        let is_told = answer["kind"] != "Status" && !answer.is_null();
        let object = is_told.then(|| object(kind, answer)).filter(|it| {
            // The last finalizer of what is deleted takes it away, and what has none goes at once.
            let goes = it.is_deleting || verb.starts_with("delete");
            !(goes && it.finalizers.is_empty())
        });
        let object = if has_succeeded { object } else { Some(wanted(answer)) };
        Write {
            line: number,
            kind,
            name: if namespace.is_empty() { name } else { format!("{namespace}/{name}") },
            uid: own("/metadata/uid").or_else(|| own("/details/uid")).unwrap_or_default(),
            version: own("/metadata/resourceVersion").and_then(|it| it.parse().ok()).unwrap_or(u64::MAX),
            from,
            to,
            known: if has_succeeded && response.to_string().len() < SENT_AT_ONCE { to } else { from },
            user: text("/user/username").to_owned(),
            verb: verb.to_owned(),
            is_certain: has_succeeded,
            object,
        }
    };
    Ok(match response["items"].as_array() {
        Some(items) => items.iter().map(written).collect(),
        None => vec![written(response)],
    })
}

/// What a request would set: a list of operations, or an object or a part of it. The ids that an attacher notes on an attachment come with
/// its finalizer, in one write.
fn wanted(request: &Value) -> Object {
    let added: Vec<(&str, &Value)> = match request.as_array() {
        Some(operations) => {
            let added = operations.iter().filter(|it| it["op"] == "add");
            added.filter_map(|it| Some((it["path"].as_str()?, &it["value"]))).collect()
        }
        None => ["/metadata/finalizers", "/metadata/annotations"]
            .iter()
            .filter_map(|&path| Some((path, request.pointer(path)?)))
            .collect(),
    };
    let finalizers = added.iter().filter(|(path, _)| path.starts_with("/metadata/finalizers"));
    let finalizers = finalizers.flat_map(|(_, it)| it.as_array().map_or_else(|| vec![*it], |all| all.iter().collect()));
    let note = |key: &str| {
        let alone = format!("/metadata/annotations/{}", key.replace('/', "~1"));
        let with_others = added.iter().filter(|(path, _)| *path == "/metadata/annotations").map(|(_, it)| &it[key]);
        let value = with_others.chain(added.iter().filter(|(path, _)| *path == alone).map(|(_, it)| *it)).last();
        value.and_then(Value::as_str).map(str::to_owned)
    };
    Object {
        finalizers: finalizers.filter_map(Value::as_str).map(str::to_owned).collect(),
        node: note(NODE_ID),
        handle: note(VOLUME_HANDLE),
        ..Object::default()
    }
}

/// What an object says.
fn object(kind: Kind, answer: &Value) -> Object {
    let own = |at: &str| answer.pointer(at).and_then(Value::as_str).map(str::to_owned).filter(|it| !it.is_empty());
    let note = |key: &str| answer["metadata"]["annotations"][key].as_str().map(str::to_owned);
    let finalizers = answer["metadata"]["finalizers"].as_array().into_iter().flatten();
    let mut object = Object {
        finalizers: finalizers.filter_map(Value::as_str).map(str::to_owned).collect(),
        is_deleting: own("/metadata/deletionTimestamp").is_some(),
        ..Object::default()
    };
    match kind {
        Kind::Volume => {
            object.driver = own("/spec/csi/driver").unwrap_or_default();
            object.handle = own("/spec/csi/volumeHandle");
            object.is_retained = answer["spec"]["persistentVolumeReclaimPolicy"] == "Retain";
        }
        Kind::Attachment => {
            object.driver = own("/spec/attacher").unwrap_or_default();
            object.volume = own("/spec/source/persistentVolumeName");
            object.node = note(NODE_ID);
            object.is_attached = answer["status"]["attached"] == true;
            object.handle = own("/spec/source/inlineVolumeSpec/csi/volumeHandle").or_else(|| note(VOLUME_HANDLE));
        }
        Kind::Snapshot | Kind::Group => {
            let (status, source, of) = match kind {
                Kind::Snapshot => ("/status/snapshotHandle", "/spec/source/snapshotHandle", "/spec/volumeSnapshotRef"),
                _ => (
                    "/status/volumeGroupSnapshotHandle",
                    "/spec/source/groupSnapshotHandles/volumeGroupSnapshotHandle",
                    "/spec/volumeGroupSnapshotRef",
                ),
            };
            object.driver = own("/spec/driver").unwrap_or_default();
            object.handle = own(status).or_else(|| own(source));
            object.is_retained = answer["spec"]["deletionPolicy"] == "Retain";
            object.of = own(&format!("{of}/uid"));
        }
        Kind::Journal => {
            object.driver = own("/metadata/labels/csi-control-plane.io~1journal").unwrap_or_default();
            object.text = answer["data"].to_string();
        }
        Kind::Left => {
            // Such as "csi-snapshotter DRIVER".
            let component = own("/source/component").unwrap_or_default();
            object.driver = component.rsplit(' ').next().map(str::to_owned).unwrap_or_default();
            object.text = own("/message").unwrap_or_default();
        }
        Kind::Claim => {}
    }
    object
}
