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
fn a_flag_whose_key_is_not_there_yet_is_undecided_unless_it_is_off() {
    let provisioner = hosted().into_iter().find(|sidecar| sidecar.name == "csi-provisioner").unwrap();
    for (argument, faults) in [("--enable-capacity", 1), ("--enable-capacity=false", 0), ("--timeout=1s", 1)] {
        let variables = expand::Variables::default();
        let read = map::read("p", "c", provisioner, &[argument.to_owned()], &variables, &|_| false);
        assert_eq!(read.faults.len(), faults, "{argument}");
        assert_eq!(read.settings, vec![], "{argument}");
    }
}
