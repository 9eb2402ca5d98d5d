//! Gates and flags that are no keys.

use super::report::FlagFate;
use super::*;
use crate::roles::sidecars::hosted;

#[test]
fn a_gate_that_cannot_be_switched_off_here_is_undecided_where_it_is_off() {
    for (name, gate, value, faults) in [
        ("csi-resizer", "RecoverVolumeExpansionFailure", "false", 1),
        ("csi-resizer", "RecoverVolumeExpansionFailure", "true", 0),
        ("csi-attacher", "ReleaseLeaderElectionOnExit", "false", 0),
        ("csi-provisioner", "ReleaseLeaderElectionOnExit", "false", 0),
        ("csi-resizer", "ReleaseLeaderElectionOnExit", "true", 0),
        ("csi-snapshotter", "ReleaseLeaderElectionOnExit", "false", 0),
        ("csi-provisioner", "CSINodeExpandSecret", "true", 0),
    ] {
        let sidecar = hosted().into_iter().find(|sidecar| sidecar.name == name).unwrap();
        let argument = format!("--feature-gates={gate}={value}");
        let read = map::read("p", "c", sidecar, &[argument], &expand::Variables::default(), &|_| true);
        assert_eq!((read.faults.len(), read.settings.len()), (faults, 0), "{gate}={value}");
        let is_undecided = read.lines.iter().any(|line| line.fate == FlagFate::Undecided);
        assert_eq!(is_undecided, faults > 0, "{gate}={value}");
        let note = &read.lines[0].note;
        assert!(note.starts_with("always on here") || faults > 0, "each gate is answered by itself: {note}");
    }
}

#[test]
fn the_only_mode_of_capacity_of_csi_provisioner_2_0_is_the_key() {
    let provisioner = hosted().into_iter().find(|sidecar| sidecar.name == "csi-provisioner").unwrap();
    for (value, fate) in [
        (
            "central",
            FlagFate::Mapped { key: "roles.provisioner.capacity.enabled".to_owned(), value: serde_json::json!(true) },
        ),
        ("", FlagFate::Dropped),
        ("local", FlagFate::Undecided),
    ] {
        let argument = format!("--capacity-controller-deployment-mode={value}");
        let read = map::read("p", "c", provisioner, &[argument], &expand::Variables::default(), &|_| true);
        assert_eq!(read.lines[0].fate, fate, "{value}");
    }
}

#[test]
fn a_gate_that_v2_3_of_csi_resizer_does_not_know_either_is_refused_with_both_reasons() {
    for (version, is_unknown) in [("v2.2.1", false), ("v2.3.0", true)] {
        let text = tests::attacher("[--csi-address=/csi/s, --feature-gates=RecoverVolumeExpansionFailure=false]");
        let text = text.replace("csi-attacher:v4", &format!("csi-resizer:{version}"));
        let Outcome { report, files } = migrate(&tests::wanted(&text));
        assert!(files.is_none() && report.faults_text().contains("and csi-resizer v2.3 does not start with the gate"));
        let says_so =
            "does not know the gate RecoverVolumeExpansionFailure (it went with 2.3), and does not start with it";
        assert_eq!(report.notes.texts().any(|note| note.contains(says_so)), is_unknown, "{version}");
    }
}

#[test]
fn a_flag_whose_key_is_not_there_yet_is_undecided_unless_it_is_off() {
    let provisioner = hosted().into_iter().find(|sidecar| sidecar.name == "csi-provisioner").unwrap();
    for (argument, faults) in [("--enable-capacity", 1), ("--enable-capacity=false", 0), ("--timeout=1s", 1)] {
        let variables = expand::Variables::default();
        let read = map::read("p", "c", provisioner, &[argument.to_owned()], &variables, &|_| false);
        assert_eq!(read.faults.len(), faults, "{argument}");
        assert_eq!(read.settings, vec![], "{argument}");
    }
}
