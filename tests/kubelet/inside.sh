#!/usr/bin/env bash
# Runs the node's tests as a machine of their own, on Linux, as root: own mounts, processes and network. `just kubelet` makes it cargo's runner.
#
# Kubelet and containerd find empty folders where they keep what they know, and leave what they write with this script; a few settings
# of the host, which the kubelet sets or refuses to run without, are files of ours.
set -euo pipefail

fail() { echo "tests/kubelet: $1" >&2 && exit 1; }

if [[ ${NODE_GROUP:-} == "" ]]; then
    [[ $(uname -s) == Linux ]] || fail "a node needs Linux"
    if ((EUID != 0)); then
        sudo -n true || fail "a node needs root, or a sudo that asks for no password"
        exec sudo -n --preserve-env "$0" "$@"
    fi
    for program in unshare mount ip; do command -v "$program" >/dev/null || fail "a node needs $program (util-linux, iproute2)"; done
    unshare --mount --pid --net --fork true || fail "this machine gives no namespaces: is this a container?"
    NODE_GROUP="csi-control-plane-node-$$" NODE_FOLDER="$(mktemp -d)"
    export NODE_GROUP NODE_FOLDER
    # Version 1 has a hierarchy for each controller, version 2 one for all.
    groups=(/sys/fs/cgroup)
    [[ -f /sys/fs/cgroup/cgroup.controllers ]] || groups=(/sys/fs/cgroup/*/)
    trap '
        find "${groups[@]}" -depth -mindepth 1 -type d -path "*/$NODE_GROUP*" -exec rmdir {} + 2>/dev/null || true
        rm -rf "$NODE_FOLDER"' EXIT
    for group in "${groups[@]}"; do mkdir "$group/$NODE_GROUP" 2>/dev/null || [[ -L ${group%/} ]] || fail "no control group can be made in $group"; done
    # Whatever ends it, all inside ends with it.
    unshare --mount --pid --net --fork --kill-child=KILL --mount-proc "$0" "$@"
    exit
fi

ip link set lo up
# The programs' own folders.
for folder in /var/lib /var/log /run; do
    mkdir -p "$NODE_FOLDER$folder"
    mount --bind "$NODE_FOLDER$folder" "$folder"
done
# Where tests keep what they start: a process outside is none here, and what belongs to it would count as left over.
temporary="$(dirname "$(dirname "$(dirname "$1")")")/tmp"
mkdir -p "$temporary" "$NODE_FOLDER/tmp"
mount --bind "$NODE_FOLDER/tmp" "$temporary"
while read -r setting value; do
    echo "$value" >"$NODE_FOLDER/${setting//\//.}"
    mount --bind "$NODE_FOLDER/${setting//\//.}" "/proc/sys/$setting"
done <<<"vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000"
# As a child: the first process here has to reap what others leave.
"$@"
