//! Whether the status of a pod proves that the process that wrote a Lease has ended. Pure.
//!
//! The process writes its identity into the termination log of its container (see [`super::container`]). The kubelet reads this file
//! once the runtime reports the container as exited, and says it as the message of `terminated`
//! (`getTerminationMessage` in its `kuberuntime_container.go`). So a message with an identity says that the very process has ended: all
//! processes of a container end with it.
//!
//! Such a proof does not age. A status of an earlier start of the container, however late it comes, has the identity of an earlier
//! process. No time, restart count or container id is compared.
//!
//! | status | proof |
//! |---|---|
//! | `state` or `lastState` of the container is `terminated`, with the identity as a line of the message | yes, also in the last state of a deleted pod |
//! | terminated with another message: an earlier process, or `ContainerStatusUnknown`, which the kubelet says of a container that it cannot find | no |
//! | running, waiting, not ready, unknown; phase Failed, as of an evicted pod or one on a lost node | no |
//! | another pod of this name; no pod | no |

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::identity::{ContainerProcess, termination_message};

/// A pod, of which only what its kubelet says of the ends of its processes is read. All fields of a pod would be a fiftieth of the daemon's
/// program.
#[derive(Debug, Clone, Default, Deserialize, kube::Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
pub(super) struct HolderPod {
    metadata: ObjectMeta,
    status: Option<PodStatus>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    state: Option<ContainerState>,
    last_state: Option<ContainerState>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerState {
    terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Deserialize)]
struct Terminated {
    message: Option<String>,
}

/// Whether the process with the identity `holder` has ended, by the word of the kubelet of its pod.
pub(super) fn has_ended(holder: &str, pod: &HolderPod) -> bool {
    let Some(process) = ContainerProcess::parse(holder) else { return false };
    let Some(status) = &pod.status else { return false };
    let message = termination_message(holder);
    // A sidecar container is among the initContainers.
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    pod.metadata.uid.as_deref() == Some(process.pod_uid)
        && containers.filter(|it| it.name == process.container).flat_map(termination_messages).any(|said| {
            // The runtime may say something first: `OOMKilled: leader election …`.
            said.lines().any(|line| line.trim_end().ends_with(&message))
        })
}

fn termination_messages(status: &ContainerStatus) -> impl Iterator<Item = &str> {
    let both = [&status.state, &status.last_state].into_iter().flatten();
    both.filter_map(|state| state.terminated.as_ref()?.message.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOLDER: &str = "pod_u1_daemon_00000002";

    fn pod(uid: &str, status: &Value) -> HolderPod {
        serde_json::from_value(json!({ "metadata": { "name": "pod", "uid": uid }, "status": status })).unwrap()
    }

    fn terminated(message: &str) -> Value {
        json!({ "terminated": { "exitCode": 137, "reason": "Error", "message": message } })
    }

    fn container(name: &str, state: &Value, last: &Value) -> Value {
        json!({ "name": name, "image": "x", "imageID": "x", "ready": false, "restartCount": 1, "state": state,
            "lastState": last })
    }

    #[test]
    fn only_a_termination_that_names_the_process_proves_its_end() {
        let of = |process: &str| terminated(&termination_message(process));
        let (own, earlier) = (of(HOLDER), of("pod_u1_daemon_00000001"));
        let (running, none) = (json!({ "running": {} }), json!({}));
        let crash_loop = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let unknown = json!({ "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated" } });
        let two = terminated(&["pod_u1_daemon_00000001", HOLDER].map(termination_message).join("\n"));
        let prefixed = terminated(&format!("OOM: {}\n", termination_message(HOLDER)));
        let cut = terminated(&termination_message(&HOLDER[..HOLDER.len() - 1]));
        let longer = of(&format!("{HOLDER}0"));
        let cases = [
            ("it is terminated", own.clone(), none.clone(), true),
            ("its successor runs", running.clone(), own.clone(), true),
            ("its successor waits", crash_loop.clone(), own.clone(), true),
            ("it was the second process of this start", two, none.clone(), true),
            ("the runtime says why", prefixed, none.clone(), true),
            ("it runs", running.clone(), none.clone(), false),
            ("it runs, and its predecessor has ended", running.clone(), earlier.clone(), false),
            ("a late status: the container was started again meanwhile", earlier.clone(), none.clone(), false),
            ("a late status, and the predecessor waited", crash_loop, earlier, false),
            ("the kubelet has lost the container", unknown.clone(), none.clone(), false),
            ("the kubelet has lost the container, and started another", running, unknown, false),
            ("terminated without a message", json!({ "terminated": { "exitCode": 0 } }), none.clone(), false),
            ("the message was cut", cut, none.clone(), false),
            ("another process, whose identity begins like it", longer, none.clone(), false),
            ("not reported yet", none.clone(), none.clone(), false),
        ];
        for (case, state, last, expected) in cases {
            let status = |kind: &str, name: &str| json!({ kind: [container(name, &state, &last)] });
            for kind in ["containerStatuses", "initContainerStatuses"] {
                assert_eq!(has_ended(HOLDER, &pod("u1", &status(kind, "daemon"))), expected, "{case}: {kind}");
                assert!(!has_ended(HOLDER, &pod("u1", &status(kind, "driver"))), "{case}: another container");
                assert!(!has_ended(HOLDER, &pod("u2", &status(kind, "daemon"))), "{case}: another pod of this name");
            }
        }
        let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": termination_message(HOLDER) });
        assert!(!has_ended(HOLDER, &pod("u1", &evicted)), "a word about the pod says nothing of the process");
        let status = json!({ "containerStatuses": [container("daemon", &own, &none)] });
        assert!(!has_ended("pod_1", &pod("u1", &status)), "an identity without a container");
        assert!(!has_ended(HOLDER, &HolderPod::default()));
    }
}
