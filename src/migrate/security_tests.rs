use serde_json::{Value as Json, json};

use super::super::tests::wanted;
use super::super::{Outcome, migrate};

/// A registrar, a prober and perhaps an attacher with these contexts, in a pod with these fields.
fn moved(annotations: &str, pod: &str, contexts: &[&str]) -> Outcome {
    let sidecars = [
        ("r", "csi-node-driver-registrar:v2.17.0", "--csi-address=/csi/s, --kubelet-registration-path=/p/s"),
        ("l", "livenessprobe:v2.19.0", "--csi-address=/csi/s"),
        ("a", "csi-attacher:v4.12.0", "--csi-address=/csi/s, --leader-election"),
    ];
    let containers = sidecars.iter().zip(contexts).map(|((name, image, args), context)| {
        format!("      - {{name: {name}, image: 'x/{image}', args: [{args}], securityContext: {context}}}\n")
    });
    let containers = containers.collect::<Vec<_>>().concat();
    migrate(&wanted(&format!(
        "kind: DaemonSet\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    metadata: {{annotations: {{{annotations}}}}}\n    \
         spec:\n      securityContext: {{{pod}}}\n      containers:\n{containers}      - {{name: driver, image: x/driver}}\n"
    )))
}

/// The context of the daemon, and what is told of contexts.
fn context(annotations: &str, pod: &str, contexts: &[&str]) -> (Json, Vec<String>) {
    let Outcome { report, files } = moved(annotations, pod, contexts);
    let files = files.unwrap_or_else(|| panic!("{}", report.faults_text()));
    let workload: Json = serde_yaml::from_str(&files.workload).unwrap();
    let containers = workload.pointer("/spec/template/spec/containers").unwrap().as_array().unwrap();
    let ours = containers.iter().find(|one| one["name"] == "csi-control-plane").unwrap();
    let told = report.notes.texts().filter(|note| note.starts_with("securityContext")).map(str::to_owned);
    (ours["securityContext"].clone(), told.collect())
}

#[test]
fn the_widest_of_each_field_is_taken_and_told_with_its_reason() {
    for (pod, contexts, expected, told) in [
        // A registrar that wrote its socket as root, behind a prober that may do nothing.
        (
            "",
            &["{privileged: true}", "{runAsUser: 65532, runAsNonRoot: true, readOnlyRootFilesystem: true}"][..],
            json!({"privileged": true, "runAsUser": 0}),
            &[
                "privileged: true, as r had it; l had none",
                "readOnlyRootFilesystem: none, as r had it; l had true",
                "the manifest sets no user",
            ][..],
        ),
        (
            "",
            &["{runAsUser: 65532, runAsNonRoot: true}", "{privileged: true, runAsUser: 0}"],
            json!({"privileged": true, "runAsUser": 0}),
            &["runAsUser: 0, as l had it; r had 65532", "runAsNonRoot: none, as l had it; r had true"],
        ),
        (
            "runAsUser: 1000, runAsNonRoot: true",
            &["{runAsUser: 0, runAsNonRoot: false}", "{allowPrivilegeEscalation: false}"],
            json!({"runAsUser": 0, "runAsNonRoot": false}),
            &["runAsUser: 0, as r had it", "allowPrivilegeEscalation: none, as r had it; l had false"],
        ),
        (
            "runAsUser: 1000",
            &[
                "{capabilities: {drop: [ALL], add: [SYS_ADMIN]}}",
                "{capabilities: {drop: [NET_RAW, KILL], add: [CAP_KILL]}}",
            ],
            json!({"capabilities": {"add": ["SYS_ADMIN", "KILL"], "drop": ["NET_RAW"]}}),
            &["capabilities: {\"add\":[\"SYS_ADMIN\",\"KILL\"],\"drop\":[\"NET_RAW\"]}"],
        ),
        (
            "runAsUser: 1000",
            &[
                "{capabilities: {drop: [ALL]}}",
                "{capabilities: {drop: [all, NET_RAW]}}",
                "{capabilities: {drop: [ALL], add: [CHOWN]}}",
            ],
            json!({"capabilities": {"add": ["CHOWN"], "drop": ["ALL"]}}),
            &["capabilities: "],
        ),
        (
            "runAsUser: 1000",
            &["{capabilities: {drop: [ALL]}}", "{}"],
            json!(null),
            &[
                "capabilities: none: it adds what one of them added, and drops only what all of them dropped; r had {\"drop\":[\"ALL\"]}, l had none",
            ],
        ),
        (
            "runAsUser: 1000, seccompProfile: {type: RuntimeDefault}",
            &["{}", "{seccompProfile: {type: Unconfined}, seLinuxOptions: {type: spc_t}}"],
            json!({"seccompProfile": {"type": "Unconfined"}, "seLinuxOptions": {"type": "spc_t"}}),
            &["seccompProfile: {\"type\":\"Unconfined\"}, as l had it; r had none", "seLinuxOptions: "],
        ),
        // What all have the same is no news.
        (
            "",
            &[
                "{runAsUser: 7, runAsGroup: 8, readOnlyRootFilesystem: true}",
                "{runAsUser: 7, runAsGroup: 8, readOnlyRootFilesystem: true}",
            ],
            json!({"runAsUser": 7, "runAsGroup": 8, "readOnlyRootFilesystem": true}),
            &[],
        ),
    ] {
        let (found, notes) = context("", pod, contexts);
        assert_eq!(found, expected, "{pod} {contexts:?}: {notes:#?}");
        for part in told {
            assert!(notes.iter().any(|note| note.contains(part)), "{part}: {notes:#?}");
        }
        assert_eq!(notes.is_empty(), told.is_empty(), "{notes:#?}");
    }
}

#[test]
fn what_contradicts_itself_is_refused_unless_the_user_takes_the_first() {
    for (contexts, key) in [
        (["{runAsUser: 1000}", "{runAsUser: 2000}"], "runAsUser"),
        (["{runAsUser: 7, runAsGroup: 1}", "{runAsUser: 7, runAsGroup: 2}"], "runAsGroup"),
        (
            ["{seccompProfile: {type: Localhost, localhostProfile: a}}", "{seccompProfile: {type: RuntimeDefault}}"],
            "seccompProfile",
        ),
        (["{seLinuxOptions: {level: 's0:c1'}}", "{seLinuxOptions: {level: 's0:c2'}}"], "seLinuxOptions"),
    ] {
        let Outcome { report, files } = moved("", "", &contexts);
        assert_eq!(files, None, "{key}");
        let [fault] = report.faults.as_slice() else { panic!("{}", report.faults_text()) };
        assert_eq!(fault.place, format!("DaemonSet n/d, securityContext.{key}"));
        assert!(fault.found.starts_with("r has ") && fault.found.contains(", and l has "), "{}", fault.found);
    }
    let privileged = ["{privileged: true}", "{seccompProfile: {type: Localhost, localhostProfile: a}}"];
    assert_eq!(context("", "", &privileged).0["privileged"], true, "a privileged one has no profile");
}

#[test]
fn no_root_is_added_where_the_platform_gives_users() {
    for (rule, is_added) in
        [("restricted-v2", false), ("nonroot-v2", false), ("privileged", true), ("hostmount-anyuid", true)]
    {
        let annotation = format!("openshift.io/required-scc: {rule}");
        let (found, notes) = context(&annotation, "", &["{}", "{}"]);
        assert_eq!(found, if is_added { json!({"runAsUser": 0}) } else { json!(null) }, "{rule}");
        let told = format!("no runAsUser is added, because openshift.io/required-scc: {rule} gives");
        assert_eq!(notes.iter().any(|note| note.contains(&told)), !is_added, "{notes:?}");
    }
    let (found, _) = context("openshift.io/required-scc: nonroot-v2", "", &["{runAsUser: 7}", "{}"]);
    assert_eq!(found, json!({"runAsUser": 7}), "what the manifest says itself stays");
}
