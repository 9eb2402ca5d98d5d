//! Records that people have written: the life of a volume, and of a snapshot, as it should be; and one violation planted for each rule.

use serde_json::{Value, json};

use super::violation::Invariant;
use super::{audit, rpc, secrets, violations};

const DRIVER: &str = "d.example.com";
const FINALIZER: &str = "external-attacher/d-example-com";
const DAEMON: &str = "system:serviceaccount:storage:daemon";
const PERSON: &str = "person";

/// Both records, each line with its time in milliseconds.
#[derive(Clone, Default)]
struct Records {
    audit: Vec<Value>,
    rpcs: Vec<Value>,
    calls: u64,
}

fn instant(millis: u64) -> String {
    format!("2026-01-01T00:00:{:02}.{:03}000Z", millis / 1000, millis % 1000)
}

impl Records {
    /// A write that took two milliseconds, and the object that came of it.
    fn write(&mut self, at: u64, user: &str, verb: &str, resource: &str, object: &Value) -> &mut Self {
        let name = object["metadata"]["name"].clone();
        self.audit.push(json!({
            "stage": "ResponseComplete", "verb": verb, "user": {"username": user}, "requestURI": "/apis",
            "objectRef": {"resource": resource, "name": name}, "responseStatus": {"code": 200},
            "requestReceivedTimestamp": instant(at), "stageTimestamp": instant(at + 2), "responseObject": object}));
        self
    }

    /// A call that began then. It has no end yet.
    fn begin(&mut self, at: u64, method: &str, about: &Value) -> &mut Self {
        self.calls += 1;
        let subject = ["volume", "snapshot", "name"].iter().find_map(|key| about[*key].as_str()).unwrap_or_default();
        let mut line = json!({
            "event": "begin", "process": "1", "call": self.calls, "time": instant(at), "driver": DRIVER,
            "method": method, "connection": 1, "changes": [subject]});
        line.as_object_mut().unwrap().extend(about.as_object().unwrap().clone());
        self.rpcs.push(line);
        self
    }

    /// The last call ends.
    fn end(&mut self, at: u64, code: &str) -> &mut Self {
        self.event(at, json!({"event": "end", "code": code}))
    }

    /// The last call has made this.
    fn made(&mut self, at: u64, ids: &[&str]) -> &mut Self {
        self.event(at, json!({"event": "made", "made": ids}))
    }

    fn event(&mut self, at: u64, mut line: Value) -> &mut Self {
        line["process"] = "1".into();
        line["call"] = self.calls.into();
        line["time"] = instant(at).into();
        self.rpcs.push(line);
        self
    }

    /// A call from begin to end.
    fn call(&mut self, at: u64, method: &str, about: &Value, code: &str) -> &mut Self {
        self.begin(at, method, about).end(at + 100, code)
    }

    /// The record of the driver.
    fn text(&self) -> String {
        self.rpcs.iter().map(Value::to_string).flat_map(|line| [line, "\n".to_owned()]).collect()
    }

    /// The invariants that these records break, in words of one line.
    fn broken(&self) -> Vec<(Invariant, String)> {
        self.broken_by(false)
    }

    /// The same for a driver that wants an expansion and a modification together, or not.
    fn broken_by(&self, takes_pairs: bool) -> Vec<(Invariant, String)> {
        let lines = (1..).zip(&self.audit);
        let writes: Vec<_> = lines.flat_map(|(number, line)| audit::read(number, &line.to_string()).unwrap()).collect();
        let text = self.text();
        let found = violations(DRIVER, takes_pairs, &writes, &rpc::read(&text).unwrap());
        found.iter().map(|it| (it.invariant, it.subject.clone())).collect()
    }

    fn breaks(&self, invariant: Invariant, subject: &str) {
        assert_eq!(self.broken(), [(invariant, subject.to_owned())]);
    }

    /// The same without the lines of which this is true.
    fn without(&self, is_it: impl Fn(&Value) -> bool) -> Self {
        let mut rest = self.clone();
        rest.audit.retain(|line| !is_it(line));
        rest.rpcs.retain(|line| !is_it(line));
        rest
    }

    /// The same with the write of this time at another time.
    fn moved(&self, from: u64, to: u64) -> Self {
        let mut moved = self.clone();
        let line = moved.at(from);
        line["requestReceivedTimestamp"] = instant(to).into();
        line["stageTimestamp"] = instant(to + 2).into();
        moved
    }

    /// The same with the write of this time by somebody else.
    fn written_by(&self, at: u64, user: &str) -> Self {
        let mut other = self.clone();
        other.at(at)["user"]["username"] = user.into();
        other
    }

    /// The write of this time.
    fn at(&mut self, at: u64) -> &mut Value {
        let found = |line: &&mut Value| line["requestReceivedTimestamp"] == instant(at);
        self.audit.iter_mut().find(found).expect("a write at this time")
    }
}

fn metadata(name: &str, version: u64, finalizers: &[&str], is_deleting: bool) -> Value {
    let deletion = if is_deleting { json!("2026-01-01T00:00:00Z") } else { Value::Null };
    json!({"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": version.to_string(),
        "finalizers": finalizers, "deletionTimestamp": deletion})
}

fn volume(version: u64, finalizers: &[&str], is_deleting: bool, policy: &str) -> Value {
    json!({"kind": "PersistentVolume", "metadata": metadata("pv", version, finalizers, is_deleting),
        "spec": {"persistentVolumeReclaimPolicy": policy, "csi": {"driver": DRIVER, "volumeHandle": "v"}}})
}

fn attachment(version: u64, finalizers: &[&str], is_deleting: bool) -> Value {
    let mut metadata = metadata("va", version, finalizers, is_deleting);
    metadata["annotations"] = json!({"csi.alpha.kubernetes.io/node-id": "n"});
    json!({"kind": "VolumeAttachment", "metadata": metadata,
        "spec": {"attacher": DRIVER, "nodeName": "node", "source": {"persistentVolumeName": "pv"}}})
}

fn attached(version: u64, finalizers: &[&str], is_deleting: bool) -> Value {
    let mut attached = attachment(version, finalizers, is_deleting);
    attached["status"] = json!({"attached": true});
    attached
}

/// A volume is made, attached, detached and deleted.
fn life() -> Records {
    const OURS: &[&str] = &[FINALIZER];
    let (on, of) = (json!({"volume": "v", "node": "n"}), json!({"volume": "v"}));
    let mut life = Records::default();
    life.begin(1000, "CreateVolume", &json!({"name": "pvc-1"})).made(1050, &["v"]).end(1100, "OK");
    life.write(2000, DAEMON, "create", "persistentvolumes", &volume(2, &[], false, "Delete"));
    life.write(3000, PERSON, "create", "volumeattachments", &attachment(3, &[], false));
    life.write(4000, DAEMON, "patch", "persistentvolumes", &volume(4, OURS, false, "Delete"));
    life.write(5000, DAEMON, "patch", "volumeattachments", &attachment(5, OURS, false));
    life.call(6000, "ControllerPublishVolume", &on, "OK");
    life.write(6200, DAEMON, "patch", "volumeattachments", &attached(6, OURS, false));
    life.write(7000, PERSON, "delete", "volumeattachments", &attached(7, OURS, true));
    life.call(8000, "ControllerUnpublishVolume", &on, "OK");
    life.write(9000, DAEMON, "patch", "volumeattachments", &attachment(9, &[], true));
    life.write(10_000, PERSON, "delete", "persistentvolumes", &volume(10, OURS, true, "Delete"));
    life.call(11_000, "DeleteVolume", &of, "OK");
    life.write(12_000, DAEMON, "patch", "persistentvolumes", &volume(12, &[], true, "Delete"));
    life
}

fn is_method(line: &Value, method: &str) -> bool {
    line["method"] == method
}

#[test]
fn a_life_as_it_should_be_breaks_nothing() {
    assert_eq!(life().broken(), []);
    let cut_off = life().text();
    let cut_off = &cut_off[..cut_off.len() - 10];
    assert_eq!(rpc::read(cut_off).unwrap().last().unwrap().end, None);
    let told = rpc::read("{}\n").unwrap_err();
    assert!(told.starts_with("rpcs.log:1 is no line of a driver's record: missing field"), "{told}");
}

#[test]
fn calls_for_one_volume_do_not_meet() {
    let meet = |about: Value| {
        let mut records = life();
        records.begin(6050, "ControllerExpandVolume", &about).end(6060, "OK");
        records
    };
    meet(json!({"volume": "v"})).breaks(Invariant::OneAtATime, "v");
    meet(json!({"volume": "w", "changes": ["w"], "reads": "v"})).breaks(Invariant::OneAtATime, "v");
    assert_eq!(meet(json!({"volume": "w"})).broken(), []);
    assert_eq!(meet(json!({"volume": "v", "connection": 2})).broken(), [], "of another caller");
    let mut pair = life();
    pair.begin(13_000, "ControllerModifyVolume", &json!({"volume": "v"})).end(13_100, "OK");
    pair.begin(13_050, "ControllerExpandVolume", &json!({"volume": "v"})).end(13_150, "OK");
    pair.breaks(Invariant::OneAtATime, "v");
    assert_eq!(pair.broken_by(true), [], "its driver wants both together");
    // A call without an end is under way until its caller waits no more.
    let mut records = life();
    records.begin(13_000, "ControllerExpandVolume", &json!({"volume": "v", "deadline": instant(20_000)}));
    let mut again = records.clone();
    records.begin(19_000, "ControllerExpandVolume", &json!({"volume": "v"})).end(19_100, "OK");
    records.breaks(Invariant::OneAtATime, "v");
    again.begin(20_000, "ControllerExpandVolume", &json!({"volume": "v"})).end(20_100, "OK");
    assert_eq!(again.broken(), []);
}

#[test]
fn no_volume_is_published_before_its_finalizers_stand() {
    let subject = "volume v on node n";
    for (what, late) in [("volume", 4000), ("attachment", 5000)] {
        let found = life().moved(late, 6200).broken();
        assert_eq!(found, [(Invariant::FinalizersBeforePublish, subject.to_owned())], "{what}");
    }
    // The daemon cannot have had the answer: it was stamped two milliseconds after the request.
    life().moved(5000, 5999).breaks(Invariant::FinalizersBeforePublish, subject);
    assert_eq!(life().moved(5000, 5998).broken(), []);
    // An attachment to another node is none.
    let mut elsewhere = life();
    elsewhere.call(6500, "ControllerPublishVolume", &json!({"volume": "v", "node": "m"}), "Internal");
    assert_eq!(elsewhere.broken()[0], (Invariant::FinalizersBeforePublish, "volume v on node m".to_owned()));
    // After its end it is none, either.
    let mut after = life();
    after.call(9500, "ControllerPublishVolume", &json!({"volume": "v", "node": "n"}), "OK");
    assert_eq!(after.broken()[0], (Invariant::FinalizersBeforePublish, subject.to_owned()));
}

#[test]
fn a_finalizer_may_stand_of_whose_write_nobody_was_told_the_end() {
    // Its writer was killed: the server has stored it, or not.
    let unanswered = |at: u64, finalizer: &str| {
        let mut records = life();
        let line = records.at(at);
        // The attachment says its node from the same write on.
        let mut notes = line["responseObject"]["metadata"]["annotations"].take();
        notes["csi-control-plane.io/volume-handle"] = "v".into();
        line["responseStatus"]["code"] = 504.into();
        line["responseObject"] = json!({"kind": "Status", "metadata": {}});
        line["requestObject"] = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]},
            {"op": "add", "path": "/metadata/annotations", "value": notes}]);
        records.at(3000)["responseObject"]["metadata"]["annotations"].take();
        records
    };
    for at in [4000, 5000] {
        assert_eq!(unanswered(at, FINALIZER).broken(), [], "{at}");
        let another = unanswered(at, "example.com/another").broken();
        assert_eq!(another, [(Invariant::FinalizersBeforePublish, "volume v on node n".to_owned())], "{at}");
    }
    // A later write was answered without it.
    let mut overtaken = unanswered(5000, FINALIZER);
    overtaken.write(5500, PERSON, "patch", "volumeattachments", &attachment(6, &[], false));
    overtaken.breaks(Invariant::FinalizersBeforePublish, "volume v on node n");
}

#[test]
fn no_finalizer_goes_before_the_volume_is_unpublished() {
    let unpublish = |code: Option<&str>, at: u64| {
        let mut records = life();
        let begin = records.rpcs.iter().position(|line| is_method(line, "ControllerUnpublishVolume")).unwrap();
        records.rpcs[begin]["time"] = instant(at).into();
        records.rpcs[begin + 1]["time"] = instant(at + 100).into();
        match code {
            Some(code) => records.rpcs[begin + 1]["code"] = code.into(),
            None => drop(records.rpcs.remove(begin + 1)),
        }
        records
    };
    assert_eq!(unpublish(Some("OK"), 8000).broken(), []);
    assert_eq!(unpublish(Some("Unimplemented"), 8000).broken(), [], "a driver that attaches nothing any more");
    for (code, at) in [(Some("Internal"), 8000), (Some("Abandoned"), 8000), (None, 8000), (Some("OK"), 8950)] {
        let found = unpublish(code, at).broken();
        let expected = (Invariant::UnpublishBeforeRelease, "volume v on node n".to_owned());
        assert!(found.contains(&expected), "{code:?} {at}: {found:?}");
    }
    // A publish without an end may have had an effect, and one that failed, too.
    for code in ["Internal", "Abandoned"] {
        let mut records = life();
        records.call(8500, "ControllerPublishVolume", &json!({"volume": "v", "node": "n"}), code);
        assert_eq!(records.broken()[0].0, Invariant::UnpublishBeforeRelease, "{code}");
    }
    // The volume's own.
    let early = life().moved(9000, 7500).moved(12_000, 7900).written_by(9000 - 1500, PERSON);
    early.breaks(Invariant::UnpublishBeforeRelease, "volume v on node n");
    // People may do as they like.
    assert_eq!(life().moved(9000, 7500).written_by(7500, PERSON).broken(), []);
}

#[test]
fn no_volume_is_unpublished_that_an_attachment_keeps() {
    let on = json!({"volume": "v", "node": "n"});
    let mut early = life();
    early.call(6500, "ControllerUnpublishVolume", &on, "OK").call(6700, "ControllerPublishVolume", &on, "OK");
    early.breaks(Invariant::NoUnpublishUnasked, "volume v on node n");
    // Whose deletion is on its way may be known already; of another node, nothing is said.
    assert_eq!(life().moved(7000, 7999).broken(), []);
    life().moved(7000, 8001).breaks(Invariant::NoUnpublishUnasked, "volume v on node n");
    let mut elsewhere = life();
    elsewhere.call(6500, "ControllerUnpublishVolume", &json!({"volume": "v", "node": "m"}), "OK");
    assert_eq!(elsewhere.broken(), []);
    // So may one whose writer was not told its end.
    let mut unanswered = life();
    let deletion = unanswered.at(7000);
    deletion["responseStatus"]["code"] = 504.into();
    deletion["requestObject"] = json!({"kind": "DeleteOptions"});
    assert_eq!(unanswered.broken(), []);
    // One that did not come about is tried again.
    let failed = life().without(|line| line["responseObject"]["status"]["attached"] == true && line["verb"] == "patch");
    assert_eq!(failed.broken(), []);
}

#[test]
fn no_volume_is_made_for_nobody() {
    let unowned = || {
        life().without(|line| line["objectRef"].is_object() || !is_method(line, "CreateVolume") && line["call"] != 1)
    };
    let subject = "volume v";
    unowned().breaks(Invariant::NothingOwnerless, subject);
    let mut in_other_letters = unowned();
    let mut object = volume(2, &[], false, "Delete");
    object["spec"]["csi"]["volumeHandle"] = "V".into();
    in_other_letters.write(2000, DAEMON, "create", "persistentvolumes", &object);
    assert_eq!(in_other_letters.broken(), []);
    let mut deleted = unowned();
    deleted.call(2000, "DeleteVolume", &json!({"volume": "v"}), "Internal");
    assert_eq!(deleted.broken(), [], "somebody tries");

    // What comes back to it: an entry of the journal, or the claim.
    let journal = |version: u64, data: Value| {
        let mut object =
            json!({"kind": "ConfigMap", "metadata": metadata("journal", version, &[], false), "data": data});
        object["metadata"]["labels"] = json!({"csi-control-plane.io/journal": DRIVER});
        object
    };
    let mut noted = unowned();
    noted.write(900, DAEMON, "patch", "configmaps", &journal(1, json!({"uid": "{\"volumeName\":\"pvc-1\"}"})));
    assert_eq!(noted.broken(), []);
    noted.write(1900, DAEMON, "patch", "configmaps", &journal(2, json!({})));
    noted.breaks(Invariant::NothingOwnerless, subject);
    let claim = |version: u64, is_gone: bool| {
        let mut metadata = metadata("claim", version, &[], is_gone);
        metadata["uid"] = "1".into();
        json!({"kind": "PersistentVolumeClaim", "metadata": metadata})
    };
    let mut claimed = unowned();
    claimed.write(500, PERSON, "create", "persistentvolumeclaims", &claim(1, false));
    assert_eq!(claimed.broken(), []);
    claimed.write(5000, PERSON, "delete", "persistentvolumeclaims", &claim(2, true));
    claimed.breaks(Invariant::NothingOwnerless, subject);

    // A call without an end may have made one; whoever asks again is told.
    let mut unended = Records::default();
    unended.begin(1000, "CreateVolume", &json!({"name": "pvc-1", "deadline": instant(1500)}));
    unended.breaks(Invariant::NothingOwnerless, "the volume that is named pvc-1, if it was made");
    unended.call(2000, "CreateVolume", &json!({"name": "pvc-1"}), "InvalidArgument");
    assert_eq!(unended.broken(), []);
    // What was made although its caller never heard of it.
    let mut lost = Records::default();
    lost.begin(1000, "CreateVolume", &json!({"name": "pvc-1"})).end(1100, "Abandoned");
    assert_eq!(lost.broken(), []);
    lost.made(1200, &["v"]);
    lost.breaks(Invariant::NothingOwnerless, subject);
    // A driver that lies is told to.
    let mut lie = Records::default();
    lie.begin(1000, "CreateVolume", &json!({"name": "pvc-1", "fault": "Lie(EmptyVolumeId)"}))
        .made(1050, &["v"])
        .end(1100, "OK");
    assert_eq!(lie.broken(), []);
}

#[test]
fn no_volume_is_deleted_that_a_volume_with_retain_names() {
    let with = |policy: &str, at: u64| {
        let mut records = life().without(|line| line["requestReceivedTimestamp"] == instant(12_000));
        records.write(at, PERSON, "patch", "persistentvolumes", &volume(11, &[FINALIZER], true, policy));
        records
    };
    with("Retain", 10_100).moved(10_100, 8500).breaks(Invariant::RetainedIsKept, "volume v");
    assert_eq!(with("Delete", 10_500).broken(), []);
    // The daemon may have looked just before.
    assert_eq!(with("Retain", 10_999).broken(), []);
}

#[test]
fn snapshots_and_groups_are_held_to_the_same() {
    let cases = [
        ("snapshot", "CreateSnapshot", "DeleteSnapshot", "volumesnapshotcontents"),
        ("group", "CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot", "volumegroupsnapshotcontents"),
    ];
    for (what, create, delete, resource) in cases {
        let content = |version: u64, handle: Option<&str>, policy: &str| {
            json!({"kind": "Content", "metadata": metadata("content", version, &["bound"], false),
                "spec": {"driver": DRIVER, "deletionPolicy": policy, "volumeSnapshotRef": {"uid": "1"},
                    "volumeGroupSnapshotRef": {"uid": "1"}},
                "status": {"snapshotHandle": handle, "volumeGroupSnapshotHandle": handle}})
        };
        let subject = format!("{what} s");
        let mut records = Records::default();
        records
            .begin(1000, create, &json!({"volume": "v", "snapshot": "snapshot-1"}))
            .made(1050, &["s", "t"])
            .end(1100, "OK");
        records.breaks(Invariant::NothingOwnerless, &subject);
        let mut pending = records.clone();
        pending.write(900, PERSON, "create", resource, &content(1, None, "Delete"));
        assert_eq!(pending.broken(), [], "its content stands");
        pending.write(9000, PERSON, "delete", resource, &{
            let mut gone = content(2, None, "Delete");
            gone["metadata"]["finalizers"] = json!([]);
            gone
        });
        pending.breaks(Invariant::NothingOwnerless, &subject);
        let mut told = records.clone();
        told.write(2000, DAEMON, "create", "events", &Value::Null);
        let event = told.audit.last_mut().unwrap();
        event["requestObject"] = json!({"kind": "Event", "metadata": {"name": "e"}, "reason": "SnapshotMaybeLeaked",
            "message": "one may be left over: s", "source": {"component": format!("csi-snapshotter {DRIVER}")}});
        assert_eq!(told.broken(), [], "people know of it");
        let mut kept = records.clone();
        kept.write(900, PERSON, "create", resource, &content(1, None, "Retain"));
        let mut gone = content(2, None, "Retain");
        gone["metadata"]["finalizers"] = json!([]);
        kept.write(9000, PERSON, "delete", resource, &gone);
        assert_eq!(kept.broken(), [], "it was to be kept");
        records.write(2000, DAEMON, "patch", resource, &content(3, Some("s"), "Retain"));
        assert_eq!(records.broken(), []);
        records.call(8000, delete, &json!({"snapshot": "s"}), "OK");
        records.breaks(Invariant::RetainedIsKept, &subject);
    }
}

#[test]
fn a_secret_is_found_wherever_it_is() {
    let known = secrets::forms("hunter2!");
    let shown = |line: &str| secrets::shown("daemon.log", 7, line, &known).map(|it| it.to_string());
    for line in ["password=hunter2!", "aHVudGVyMiE=", "Bearer eyJhbGciOiJSUzI1NiJ9.e30.x"] {
        let told = shown(line).unwrap();
        assert!(
            told.starts_with("no secret in a record or a log: daemon.log: a secret is in line 7, after "),
            "{told}"
        );
        assert!(!told.contains("hunter2") && !told.contains("eyJ"), "{told}");
    }
    assert_eq!(shown("password=Stripped(1)"), None);
    assert!(secrets::forms("short").is_empty(), "it would be found by chance");
}
