#!/usr/bin/env bash
# Runs the tests of nodes as a machine of their own, on Linux, as root: own mounts, processes and network. `just node` makes it cargo's
# runner.
#
# Kubelet and containerd find empty folders where they keep what they know, and leave what they write with this script; a few settings
# of the host, which the kubelet sets or refuses to run without, are files of ours. All inside ends with this script, however that
# ends: a second process, which outlives it, takes away its folder, control groups and loop devices. After a failure the logs of all
# programs and pods are in `tmp/node` of the target folder.
#
# On a machine that can't be a node it says the first reason why, and runs nothing. `just prove` counts that as a failure.
set -euo pipefail

skip() {
    [[ -z ${NODE_FOLDER:-} ]] || rm -rf "$NODE_FOLDER"
    echo "tests/node: nothing is run, as $1" >&2
    exit 0
}

# Where tests keep what they start.
temporary="$(dirname "$(dirname "$(dirname "$1")")")/tmp"

# Inside, this is the first process.
if (($$ != 1)); then
    [[ $(uname -s) == Linux ]] || skip "a node needs Linux"
    if ((EUID != 0)); then
        sudo -n true || skip "a node needs root, or a sudo that asks for no password"
        exec sudo -n --preserve-env "$0" "$@"
    fi
    for program in unshare nsenter setpriv mount losetup ip tar; do
        command -v "$program" >/dev/null || skip "a node needs $program (util-linux, iproute2, tar)"
    done
    unshare --mount --pid --net --fork true || skip "this machine gives no namespaces: is this a container?"
    unshare --net ip link add name a type veth peer name b || skip "this kernel has no veth, which gives pods a network"
    [[ -r /dev/kmsg ]] || skip "the kubelet reads /dev/kmsg, and it can't be read"
    NODE_FOLDER="$(mktemp -d)"
    NODE_GROUP="csi-control-plane-${NODE_FOLDER##*/}"
    export NODE_GROUP NODE_FOLDER
    mkdir "$NODE_FOLDER/"{lower,upper,work,merged}
    # shellcheck disable=SC2016
    unshare --mount bash -c 'mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged"' - "$NODE_FOLDER" ||
        skip "this kernel mounts no overlay, which images need, in $NODE_FOLDER"
    # Version 1 has a hierarchy for each controller, version 2 one for all.
    groups=(/sys/fs/cgroup)
    [[ -f /sys/fs/cgroup/cgroup.controllers ]] || groups=(/sys/fs/cgroup/*/)
    # The devices of a file or device, and of those devices, the last first.
    devices() {
        local device
        losetup --noheadings --output NAME --associated "$1" | while read -r device; do
            devices "$device"
            echo "$device"
        done
    }
    clean() {
        # What was killed leaves its groups a moment later.
        for _ in {1..100}; do
            find "${groups[@]}" -depth -mindepth 1 -type d -path "*/$NODE_GROUP*" -exec rmdir {} + 2>/dev/null && break
            sleep 0.1
        done
        for file in "$NODE_FOLDER"/lab-*/storage/content/*; do
            [[ ! -f $file ]] || devices "$file" | xargs --no-run-if-empty losetup --detach
        done
        rm -rf "$NODE_FOLDER"
    }
    for path in "$1" "$NODE_FOLDER" ${CLUSTER_PROGRAMS//:/ }; do
        case "$path" in
            /var/lib/* | /var/log/* | /run/*) skip "$path would be hidden: /var/lib, /var/log and /run are the node's" ;;
        esac
    done
    # In version 2 a group has the controllers that the one above gives to its groups. A kubelet gives them all, too.
    if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
        for controller in cpu cpuset memory hugetlb pids; do
            ! grep -qw "$controller" /sys/fs/cgroup/cgroup.controllers || echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
        done
    fi
    for group in "${groups[@]}"; do mkdir -p "$group/$NODE_GROUP" || skip "no control group can be made in $group"; done
    # It is told of our end by that of its input, and is in no group that a key or a runner could end.
    fifo="$NODE_FOLDER/end"
    mkfifo "$fifo"
    (
        trap '' INT TERM HUP
        read -r _ <"$fifo" || true
        clean
    ) &
    exec {end}>"$fifo"
    janitor=$!
    setpriv --pdeathsig KILL unshare --mount --pid --net --fork --kill-child=KILL --mount-proc "$0" "$@" {end}>&- &
    inside=$! status=0 ended=
    trap 'kill -KILL "$inside"; ended=143' TERM HUP
    trap 'kill -KILL "$inside"; ended=130' INT
    # A signal ends the first wait alone.
    wait "$inside" || status=$?
    [[ -z $ended ]] || { wait "$inside" || status=$ended; } 2>/dev/null
    rm -rf "$temporary/node"
    if ((status)); then
        mkdir -p "$temporary/node"
        (cd "$NODE_FOLDER" && find . -type f -name '*.log' -print0 | tar --null --files-from=- --create) | tar --extract --directory="$temporary/node"
        echo "tests/node: the logs are in $temporary/node" >&2
    fi
    exec {end}>&-
    wait "$janitor"
    exit "$status"
fi

ip link set lo up
# The nodes' addresses, and that of the API server for pods. Nothing leaves the machine.
for address in 10.1.0.{1..3} 10.0.0.1; do ip address add "$address/32" dev lo; done
# The programs' own folders.
for folder in /var/lib /var/log /run; do
    mkdir -p "$NODE_FOLDER$folder"
    mount --bind "$NODE_FOLDER$folder" "$folder"
done
# A process outside is none here, and what belongs to it would count as left over.
mkdir -p "$temporary" "$NODE_FOLDER/tmp"
mount --bind "$NODE_FOLDER/tmp" "$temporary"
mkdir "$NODE_FOLDER/settings"
while read -r setting value; do
    echo "$value" >"$NODE_FOLDER/settings/${setting//\//.}"
    mount --bind "$NODE_FOLDER/settings/${setting//\//.}" "/proc/sys/$setting"
done <<<"vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000"
# As a child: the first process here has to reap what others leave.
"$@"
