//! How the pods follow when the template of their workload is replaced: by themselves, or only if the user does something. Pure.
//!
//! | the workload has | what the steps do |
//! |---|---|
//! | a rolling update, or `Recreate` | they wait for it |
//! | `spec.paused: true` | they resume the roll-out, wait for it, and pause again |
//! | `updateStrategy.type: OnDelete` | they delete the pods, since nothing else replaces them, and wait for the new ones |
//! | `rollingUpdate.partition` above 0 | they wait for the pods that follow, a canary; then they let all follow, and put the partition back |

use serde_yaml::Value;

/// What replaces the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rollout {
    /// Kubernetes, at once.
    Rolling,
    /// Kubernetes, once the Deployment is resumed.
    Paused,
    /// The user, who deletes them.
    OnDelete,
    /// Kubernetes, but for the pods before this number.
    Partition(u64),
}

/// The parts of the commands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pods<'a> {
    /// The option of the namespace.
    pub(super) place: &'a str,
    /// The workload's kind.
    pub(super) kind: &'a str,
    /// Its name.
    pub(super) name: &'a str,
    /// The labels that select its pods, if kubectl can write them.
    pub(super) selector: Option<&'a str>,
    /// Whether the old pods have ended already.
    pub(super) have_ended: bool,
    /// Whether these are the commands of the way back.
    pub(super) is_back: bool,
}

impl Rollout {
    /// That of a workload with this specification.
    pub(super) fn of(kind: &str, spec: &Value) -> Self {
        let strategy = spec.get("updateStrategy");
        let partition = strategy.and_then(|it| it.get("rollingUpdate")?.get("partition")?.as_u64());
        match kind {
            "Deployment" if spec.get("paused").and_then(Value::as_bool) == Some(true) => Self::Paused,
            "Deployment" => Self::Rolling,
            _ if strategy.and_then(|it| it.get("type")?.as_str()) == Some("OnDelete") => Self::OnDelete,
            "StatefulSet" => partition.filter(|first| *first > 0).map_or(Self::Rolling, Self::Partition),
            _ => Self::Rolling,
        }
    }

    /// What the report says of it.
    pub(super) fn note(self) -> Option<String> {
        match self {
            Self::Rolling => None,
            Self::Paused => Some(
                "spec.paused is true, so that no roll-out begins by itself: the steps resume it, and pause it again".to_owned(),
            ),
            Self::OnDelete => Some(
                "spec.updateStrategy is OnDelete, so that nothing replaces a pod which nobody deletes: the steps delete all pods at once; \
                 delete them one after the other instead where that matters"
                    .to_owned(),
            ),
            Self::Partition(first) => Some(format!(
                "spec.updateStrategy.rollingUpdate.partition is {first}, so that the pods before that number keep their sidecars at \
                 first: a canary, which the steps wait for. Then the steps let all pods follow, and put the partition back; the way back \
                 does the same, and ends only then. Until all follow, both work side by side, as both use the Leases"
            )),
        }
    }

    /// The commands behind `kubectl replace`, until the new pods are ready.
    pub(super) fn lines(self, pods: Pods<'_>) -> Vec<String> {
        let Pods { place, kind, name, selector, have_ended, is_back } = pods;
        let kind = kind.to_lowercase();
        let it = format!("{place} {kind}/{name}");
        let status = format!("kubectl rollout status{it}");
        let partition = |first: u64| {
            format!(
                "kubectl patch{it} --type=merge --patch '{{\"spec\":{{\"updateStrategy\":{{\"rollingUpdate\":{{\"partition\":{first}}}}}}}}}'"
            )
        };
        match self {
            Self::Rolling => vec![status],
            Self::Paused => {
                vec![format!("kubectl rollout resume{it}"), status, format!("kubectl rollout pause{it}")]
            }
            Self::Partition(first) => {
                let told = if is_back {
                    format!("# the pods from number {first} on are back: now the others, or no end comes")
                } else {
                    format!("# the pods from number {first} on are a canary: look at them, then go on, or back")
                };
                vec![status.clone(), told, partition(0), status, partition(first)]
            }
            Self::OnDelete => {
                let until =
                    |condition: &str| format!("until kubectl get{it} -o json | jq -e '{condition}'; do sleep 2; done");
                let seen = ".status.observedGeneration == .metadata.generation";
                let ready = if kind == "daemonset" {
                    "(.status.updatedNumberScheduled // 0) == .status.desiredNumberScheduled and .status.numberReady == \
                     .status.desiredNumberScheduled"
                } else {
                    "(.status.updatedReplicas // 0) == .spec.replicas and (.status.readyReplicas // 0) == .spec.replicas"
                };
                let ready = until(&format!("{seen} and {ready}"));
                if have_ended {
                    return vec![ready];
                }
                let delete = match selector {
                    Some(labels) => format!("kubectl delete pod{place} --selector={labels}"),
                    None => format!("# delete the pods of {name}: kubectl delete pod{place} POD"),
                };
                // Before the new template is known, a deleted pod comes back as it was.
                vec![until(seen), delete, ready]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Weight;
    use super::super::tests::{attacher, wanted};
    use super::super::{Report, Wanted, migrate};

    /// The report on an attacher in this kind of workload, whose specification has these fields, too.
    fn report(kind: &str, election: bool, fields: &str) -> Report {
        let election = if election { ", --leader-election" } else { "" };
        let text = attacher(&format!("[--csi-address=/csi/s{election}]")).replace("Deployment", kind);
        let text = text.replace(
            "spec:\n  template",
            &format!("spec:\n  selector: {{matchLabels: {{app: d}}}}\n{fields}  template"),
        );
        let outcome = migrate(&Wanted { folder: Some("m".to_owned()), ..wanted(&text) });
        assert!(outcome.files.is_some(), "{}", outcome.report.faults_text());
        outcome.report
    }

    /// The commands behind each of the two `kubectl replace`, up to those that remove what the move brought.
    fn behind(report: &Report) -> [Vec<&str>; 2] {
        let lines: Vec<&str> = report.next.iter().map(|line| line.trim()).collect();
        let at = |file: &str| lines.iter().position(|line| line.ends_with(&format!("-f m/{file}.yaml"))).unwrap();
        let back = lines.iter().position(|line| line.starts_with("to go back")).unwrap();
        let delete = lines.iter().position(|line| line.starts_with("kubectl delete -f")).unwrap();
        let is_command = |line: &&str| !line.starts_with(['#', '(']);
        let bare = |line: &'_ str| {
            line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit() || ". ".contains(c)).len()
        };
        [at("workload") + 1..back, at("original") + 1..delete]
            .map(|range| lines[range].iter().map(|line| &line[bare(line)..]).filter(is_command).collect())
    }

    const DAEMONS: &str = "until kubectl get -n n daemonset/d -o json | jq -e '.status.observedGeneration == .metadata.generation and \
                           (.status.updatedNumberScheduled // 0) == .status.desiredNumberScheduled and .status.numberReady == \
                           .status.desiredNumberScheduled'; do sleep 2; done";
    const STATEFUL: &str = "until kubectl get -n n statefulset/d -o json | jq -e '.status.observedGeneration == .metadata.generation and \
                            (.status.updatedReplicas // 0) == .spec.replicas and (.status.readyReplicas // 0) == .spec.replicas'; do \
                            sleep 2; done";
    const SEEN: &str = "until kubectl get -n n statefulset/d -o json | jq -e '.status.observedGeneration == .metadata.generation'; do \
                        sleep 2; done";

    #[test]
    fn the_steps_replace_the_pods_where_the_update_does_not_on_both_ways() {
        let on_delete = "  replicas: 2\n  updateStrategy: {type: OnDelete}\n";
        let patch = |first: u64| {
            format!(
                "kubectl patch -n n statefulset/d --type=merge --patch '{{\"spec\":{{\"updateStrategy\":{{\"rollingUpdate\":{{\"partition\":{first}}}}}}}}}'"
            )
        };
        let status = |kind: &str| format!("kubectl rollout status -n n {kind}/d");
        for (kind, fields, expected) in [
            ("Deployment", "", vec![status("deployment")]),
            (
                "Deployment",
                "  paused: true\n",
                vec![
                    "kubectl rollout resume -n n deployment/d".to_owned(),
                    status("deployment"),
                    "kubectl rollout pause -n n deployment/d".to_owned(),
                ],
            ),
            (
                "StatefulSet",
                on_delete,
                vec![SEEN.to_owned(), "kubectl delete pod -n n --selector=app=d".to_owned(), STATEFUL.to_owned()],
            ),
            (
                "DaemonSet",
                "  updateStrategy: {type: OnDelete}\n",
                vec![
                    SEEN.replace("statefulset", "daemonset"),
                    "kubectl delete pod -n n --selector=app=d".to_owned(),
                    DAEMONS.to_owned(),
                ],
            ),
            (
                "StatefulSet",
                "  replicas: 3\n  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}\n",
                vec![status("statefulset"), patch(0), status("statefulset"), patch(2)],
            ),
            (
                "StatefulSet",
                "  replicas: 3\n  updateStrategy: {rollingUpdate: {partition: 0}}\n",
                vec![status("statefulset")],
            ),
        ] {
            let report = report(kind, true, fields);
            for steps in behind(&report) {
                let steps: Vec<_> =
                    steps.into_iter().filter(|step| !step.starts_with("until kubectl get pods")).collect();
                assert_eq!(steps, expected, "{kind} {fields}");
            }
            let canary = |text: &str| report.next.iter().filter(|line| line.contains(text)).count();
            let is_partial = expected.contains(&patch(0));
            assert_eq!(
                [canary("2 on are a canary"), canary("2 on are back")],
                [usize::from(is_partial); 2],
                "{report}"
            );
            let is_told = report.notes.texts().any(|note| note.contains("the steps "));
            assert_eq!(is_told, expected.len() > 1, "{kind} {fields}: {report}");
        }
    }

    #[test]
    fn a_partition_is_taken_out_first_where_no_lease_keeps_old_and_new_apart() {
        let partition = "  replicas: 3\n  updateStrategy: {rollingUpdate: {partition: 2}}\n";
        for (election, count) in [(true, 0), (false, 1)] {
            let report = report("StatefulSet", election, partition);
            let notes = report
                .notes
                .of(Weight::MustDo)
                .filter(|note| note.contains("partition out of the workload before the move"));
            assert_eq!(notes.count(), count, "{report}");
        }
    }

    #[test]
    fn pods_that_have_ended_already_are_not_deleted_again() {
        let report = report("StatefulSet", false, "  replicas: 2\n  updateStrategy: {type: OnDelete}\n");
        assert_eq!(behind(&report), [vec![STATEFUL], vec![STATEFUL]]);
    }
}
