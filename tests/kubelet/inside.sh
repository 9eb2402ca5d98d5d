#!/usr/bin/env bash
# Runs the kubelet's test as a machine of its own, on Linux, as root: own mounts, processes and network. `just kubelet` makes it cargo's
# runner.
#
# Kubelet and containerd find empty folders where they keep what they know, and leave what they write with this script; a few settings
# of the host, which the kubelet sets or refuses to run without, are files of ours. All inside ends with this script, however that
# ends. Who kills it leaves its folder and empty control groups.
set -euo pipefail

fail() { echo "tests/kubelet: $1" >&2 && exit 1; }

# Inside, this is the first process.
if (($$ != 1)); then
    [[ $(uname -s) == Linux ]] || fail "a node needs Linux"
    if ((EUID != 0)); then
        sudo -n true || fail "a node needs root, or a sudo that asks for no password"
        exec sudo -n --preserve-env "$0" "$@"
    fi
    for program in unshare setpriv mount ip; do
        command -v "$program" >/dev/null || fail "a node needs $program (util-linux, iproute2)"
    done
    unshare --mount --pid --net --fork true || fail "this machine gives no namespaces: is this a container?"
    NODE_GROUP="csi-control-plane-node-$$" NODE_FOLDER="$(mktemp -d)"
    export NODE_GROUP NODE_FOLDER
    # Version 1 has a hierarchy for each controller, version 2 one for all.
    groups=(/sys/fs/cgroup)
    [[ -f /sys/fs/cgroup/cgroup.controllers ]] || groups=(/sys/fs/cgroup/*/)
    inside=
    clean() {
        [[ $inside == "" ]] || { kill -KILL "$inside" && wait "$inside"; } 2>/dev/null || true
        # What was killed leaves its groups a moment later.
        for _ in {1..50}; do
            find "${groups[@]}" -depth -mindepth 1 -type d -path "*/$NODE_GROUP*" -exec rmdir {} + 2>/dev/null && break
            sleep 0.1
        done
        rm -rf "$NODE_FOLDER"
    }
    trap clean EXIT
    trap 'exit 143' TERM HUP
    trap 'exit 130' INT
    for path in "$1" "$NODE_FOLDER" ${CLUSTER_PROGRAMS//:/ }; do
        case "$path" in
            /var/lib/* | /var/log/* | /run/*) fail "$path would be hidden: /var/lib, /var/log and /run are the node's" ;;
        esac
    done
    # In version 2 a group has the controllers that the one above gives to its groups. A kubelet gives them all, too.
    if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
        for controller in cpu cpuset memory hugetlb pids; do
            ! grep -qw "$controller" /sys/fs/cgroup/cgroup.controllers || echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
        done
    fi
    for group in "${groups[@]}"; do mkdir -p "$group/$NODE_GROUP" || fail "no control group can be made in $group"; done
    setpriv --pdeathsig KILL unshare --mount --pid --net --fork --kill-child=KILL --mount-proc "$0" "$@" &
    inside=$! status=0
    wait "$inside" || status=$?
    inside=
    exit "$status"
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
