#!/usr/bin/env bash
# Is a node of the tests, and its first process: mounts of its own, and in them the folders of a clean host. What runs on the node enters
# it.
#
#   machine.sh FOLDER STORAGE READY GROUP    the folder of what the node keeps, that of the demo driver's volumes, which is the same on
#                                            all nodes, a file that is made when the node is there, and its control group
set -euo pipefail
folder=$1 storage=$2 ready=$3 group=$4
mount --make-rprivate /
for path in /var/lib /var/log /run; do
    mkdir -p "$folder$path"
    mount --bind "$folder$path" "$path"
done
mkdir -p "$storage" /var/lib/demo-storage
mount --bind "$storage" /var/lib/demo-storage
# This node's own /proc has the host's settings again.
for file in "$NODE_FOLDER"/settings/*; do
    setting="${file##*/}"
    mount --bind "$file" "/proc/sys/${setting//.//}"
done
# What a pod mounts for the node is there for all.
mount --make-rshared /
hierarchies=(/sys/fs/cgroup)
[[ -f /sys/fs/cgroup/cgroup.controllers ]] || hierarchies=(/sys/fs/cgroup/*/)
for hierarchy in "${hierarchies[@]}"; do mkdir -p "$hierarchy/$group"; done
touch "$ready"
# As the first process it has to reap what others leave, which a shell does.
while :; do
    sleep 1000 &
    wait $!
done
