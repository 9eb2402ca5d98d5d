//! However the tests end, nothing of theirs stays on the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::eventually;

/// Takes what a node takes: a control group with a process in it, a mount, and a device for a file of the driver's.
const TAKER: &str = r#"#!/usr/bin/env bash
set -euo pipefail
groups=(/sys/fs/cgroup)
[[ -f /sys/fs/cgroup/cgroup.controllers ]] || groups=(/sys/fs/cgroup/pids)
mkdir "$groups/$NODE_GROUP/pod"
sleep 1000 &
echo $! >"$groups/$NODE_GROUP/pod/cgroup.procs"
mkdir -p "$NODE_FOLDER/lab-0/storage/content" "$NODE_FOLDER/mount"
mount -t tmpfs tmpfs "$NODE_FOLDER/mount"
truncate --size=1M "$NODE_FOLDER/lab-0/storage/content/volume"
device="$(losetup --find --show "$NODE_FOLDER/lab-0/storage/content/volume")"
# As the kubelet takes one for a pod's device.
above="$(losetup --find --show "$device")"
echo "$NODE_GROUP ${device##*/} ${above##*/} $NODE_FOLDER" >"${0%/*}/taken.part"
mv "${0%/*}/taken.part" "${0%/*}/taken"
wait
"#;

#[tokio::test]
async fn who_is_killed_leaves_no_process_no_group_no_device_and_no_folder() {
    // Where cargo's runner finds a test's executable: three folders below what it calls the target folder.
    let target = tempfile::tempdir().unwrap();
    let folder = target.path().join("debug/deps");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("program");
    fs::write(&program, TAKER).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/inside.sh");
    let mut inside = Command::new(script).arg(&program).stdin(Stdio::null()).spawn().unwrap();
    let taken = folder.join("taken");
    eventually("everything is taken", async || taken.exists().then_some(())).await;
    let taken = fs::read_to_string(taken).unwrap();
    let [group, device, above, folder] = taken.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{taken}") };
    let file_of = |device: &str| Path::new("/sys/block").join(device).join("loop/backing_file");
    let is_taken = [group_exists(group), file_of(device).exists(), file_of(above).exists(), Path::new(folder).exists()];
    assert_eq!(is_taken, [true; 4], "{taken}");

    inside.kill().unwrap();
    inside.wait().unwrap();
    eventually("nothing is left", async || {
        let is_left =
            group_exists(group) || file_of(device).exists() || file_of(above).exists() || Path::new(folder).exists();
        (!is_left).then_some(())
    })
    .await;
}

/// Whether there is a control group of this name. One that has a process cannot be removed: none has.
fn group_exists(name: &str) -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root).unwrap().flatten().map(|entry| entry.path());
    hierarchies.chain([root.to_owned()]).any(|hierarchy| hierarchy.join(name).exists())
}
