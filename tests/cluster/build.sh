#!/usr/bin/env bash
# Builds the programs of the cluster tests once, and prints the folder that they are in.
#
#   go/kubernetes   etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl
#   go/kubernetes-last   the same of the minor version before it
#   go/kubelet      kubelet
#   go/containerd   containerd, containerd-shim-runc-v2, ctr, and two plugins that give pods a network: ptp, host-local
#   go/peers        csi-attacher, csi-sanity
#   go/provisioner  csi-provisioner
#   go/resizer      csi-resizer
#   go/snapshotter  csi-snapshotter, snapshot-controller, and the CRDs of snapshots as their project publishes them
#   go/nodesidecars csi-node-driver-registrar, livenessprobe: ours, with the flags of the Go sidecars of these names
#   go/mockdriver   mock-driver, ours around the mock driver of Kubernetes' own end-to-end tests
#   go/e2e          e2e.test, ours around Kubernetes' own External Storage suite; ginkgo, which runs it in parallel; and agnhost, which
#                   pods of it run
#   go/helm         helm
#   go/helm3        helm3: the last major version, which many still install with
#   go/promtool     promtool
#   go/prometheus   prometheus, without its user interface and the clouds that it can discover targets in
#   go/dockerfile   dockerfile-lint, ours around BuildKit's checks
#   go/actionlint   actionlint, which checks the workflows in .github
#   go/signing      cosign, which signs a release, and crane, which makes images and serves a registry
#   go/translation  translate-in-tree, ours around the translation of in-tree volumes of the Go sidecars
#   older           csi-control-plane-older: the daemon of the commit that the file `older` names
#   debian          runc and a static busybox, from Debian's packages, which are unpacked and not installed
#
# Not here: node-driver-registrar, livenessprobe and csi-driver-host-path themselves, whose modules the go command does not find. The demo
# driver stands in for the last. NODE_SIDECARS, if set, is a folder with the real programs of the first two, to use instead of ours.
#
# A build is kept outside the tree, by version and by what its go.sum (and our own Go, if any) says; what exists isn't built again.
# KUBEBUILDER_ASSETS, if set, is the folder of an etcd, a kube-apiserver and a kubectl to use instead (setup-envtest's).
#
#   build.sh [kubernetes | kubernetes-last | kubelet | containerd | debian | peers | provisioner | resizer | snapshotter | nodesidecars | mockdriver | e2e | helm | helm3 | promtool | prometheus | dockerfile | actionlint | signing | translation | older]...     all, if none is named
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${CSI_CONTROL_PLANE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/csi-control-plane}/cluster"
mkdir -p "$cache"

# The version of a module in go/<part>/go.mod.
version() { awk -v module="$2" '$1 == "require" { $1 = $2; $2 = $3 } $1 == module { print $2; exit }' "$here/go/$1/go.mod"; }

# The folder of a part's programs: one for each state of its files.
folder() {
    local sums
    [[ $1 != debian ]] || { echo "$cache/debian-$(uname -m)" && return; }
    [[ $1 != older ]] || { echo "$cache/older-$(earlier)" && return; }
    sums="$(cat "$here/go/$1/"*.* | sha256sum | cut -c1-8)"
    case $1 in
        kubernetes | kubernetes-last) echo "$cache/kubernetes-$(version "$1" k8s.io/kubernetes)-$sums" ;;
        kubelet) echo "$cache/kubelet-$(version kubelet k8s.io/kubernetes)-$sums" ;;
        containerd) echo "$cache/containerd-$(version containerd github.com/containerd/containerd/v2)-$sums" ;;
        peers) echo "$cache/peers-$(version peers github.com/kubernetes-csi/external-attacher/v4)-$sums" ;;
        provisioner) echo "$cache/provisioner-$(version provisioner github.com/kubernetes-csi/external-provisioner/v6)-$sums" ;;
        resizer) echo "$cache/resizer-$(version resizer github.com/kubernetes-csi/external-resizer/v2)-$sums" ;;
        snapshotter) echo "$cache/snapshotter-$(version snapshotter github.com/kubernetes-csi/external-snapshotter/v8)-$sums" ;;
        nodesidecars) echo "$cache/nodesidecars-$sums" ;;
        mockdriver) echo "$cache/mockdriver-$(version mockdriver k8s.io/kubernetes)-$sums" ;;
        e2e) echo "$cache/e2e-$(version e2e k8s.io/kubernetes)-$sums" ;;
        helm) echo "$cache/helm-$(version helm helm.sh/helm/v4)-$sums" ;;
        helm3) echo "$cache/helm3-$(version helm3 helm.sh/helm/v3)-$sums" ;;
        promtool) echo "$cache/promtool-$(version promtool github.com/prometheus/prometheus)-$sums" ;;
        prometheus) echo "$cache/prometheus-$(version prometheus github.com/prometheus/prometheus)-$sums" ;;
        dockerfile) echo "$cache/dockerfile-$(version dockerfile github.com/moby/buildkit)-$sums" ;;
        actionlint) echo "$cache/actionlint-$(version actionlint github.com/rhysd/actionlint)-$sums" ;;
        signing) echo "$cache/signing-$(version signing github.com/sigstore/cosign/v3)-$sums" ;;
        translation) echo "$cache/translation-$(version translation k8s.io/csi-translation-lib)-$sums" ;;
        *) echo "build.sh: there is no part $1" >&2 && exit 64 ;;
    esac
}

# A program of a part: its package, what its linker is told, its build tags, and the command that builds it.
program() {
    local part=$1 name=$2 package=$3 flags=$4 tags=${5:-} command=${6:-build} into
    into="$(folder "$part")"
    [[ -x $into/$name ]] && return
    echo "building $name" >&2
    # All modules at once: a build fetches one after the other, which takes many times as long. What is missing, it names.
    (cd "$here/go/$part" && GOWORK=off GOFLAGS=-mod=readonly go mod download >&2) || true
    # The lowest priority and no workspace: a developer's machine stays usable, and a developer's go.work stays out.
    # shellcheck disable=SC2086
    (cd "$here/go/$part" && GOWORK=off GOFLAGS=-mod=readonly CGO_ENABLED=0 \
        nice -n 19 go $command -trimpath -tags "$tags" -ldflags "-s -w $flags" -o "$into/.$name.part" "$package")
    mv "$into/.$name.part" "$into/$name"
}

# A program of a package of Debian: the package's name, and the program's path in it.
packaged() {
    local package=$1 path=$2 into unpacked
    into="$(folder debian)"
    [[ -x $into/${path##*/} ]] && return
    command -v apt-get >/dev/null || { echo "build.sh: ${path##*/} comes from Debian's package $package, and this machine has no apt-get" >&2 && exit 1; }
    unpacked="$(mktemp -d)"
    # A machine whose lists are old, or that has none yet, has to ask for them first.
    (cd "$unpacked" && { apt-get download "$package" || { apt-get update && apt-get download "$package"; }; } >&2 && dpkg-deb -x ./*.deb .)
    mv "$unpacked/$path" "$into/${path##*/}"
    rm -rf "$unpacked"
}

# The commit that the file `older` names.
earlier() { grep -v '^#' "$here/older"; }

# The daemon of that commit.
older() {
    local into tree
    into="$(folder older)"
    [[ -x $into/csi-control-plane-older ]] && return
    echo "building csi-control-plane-older" >&2
    tree="$(mktemp -d)"
    git -C "$here/../.." archive "$(earlier)" | tar -x -C "$tree" ||
        { echo "build.sh: this clone does not have commit $(earlier), which tests/cluster/older names: git fetch --unshallow" >&2 && exit 1; }
    (cd "$tree" && CARGO_TARGET_DIR="$into/target" CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
        nice -n 19 cargo build --locked --bin csi-control-plane >&2)
    mv "$into/target/debug/csi-control-plane" "$into/csi-control-plane-older"
    rm -rf "$into/target" "$tree"
}

# The CRDs of snapshots, which come with the module of their types.
definitions() {
    local into source
    into="$(folder snapshotter)/crds"
    [[ -d $into ]] && return
    source="$(cd "$here/go/snapshotter" && GOWORK=off GOFLAGS=-mod=readonly \
        go list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8)"
    mkdir -p "$into.part"
    cp "$source"/config/crd/*snapshot*.yaml "$into.part/"
    chmod -R u+w "$into.part"
    mv "$into.part" "$into"
}

build() {
    local part=$1 release stamp
    mkdir -p "$(folder "$part")"
    # One build at a time: whoever comes second finds it done.
    exec 9>"$(folder "$part")/.lock"
    flock 9
    case $part in
        kubernetes | kubernetes-last)
            release="$(version "$part" k8s.io/kubernetes)"
            stamp="-X k8s.io/component-base/version.gitVersion=$release -X k8s.io/client-go/pkg/version.gitVersion=$release"
            if [[ -z ${KUBEBUILDER_ASSETS:-} ]]; then
                program "$part" etcd go.etcd.io/etcd/server/v3 ""
                program "$part" kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$stamp"
                program "$part" kubectl k8s.io/kubernetes/cmd/kubectl "$stamp"
            fi
            program "$part" kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager "$stamp"
            program "$part" kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler "$stamp"
            ;;
        kubelet)
            release="$(version kubelet k8s.io/kubernetes)"
            stamp="-X k8s.io/component-base/version.gitVersion=$release -X k8s.io/client-go/pkg/version.gitVersion=$release"
            program kubelet kubelet k8s.io/kubernetes/cmd/kubelet "$stamp"
            ;;
        containerd)
            local name
            for name in containerd containerd-shim-runc-v2 ctr; do
                program containerd "$name" "github.com/containerd/containerd/v2/cmd/$name" "" "no_btrfs no_devmapper no_zfs"
            done
            program containerd ptp github.com/containernetworking/plugins/plugins/main/ptp ""
            program containerd host-local github.com/containernetworking/plugins/plugins/ipam/host-local ""
            ;;
        debian)
            packaged runc usr/sbin/runc
            packaged busybox-static bin/busybox
            ;;
        peers)
            release="$(version peers github.com/kubernetes-csi/external-attacher/v4)"
            program peers csi-attacher github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher "-X main.version=$release"
            program peers csi-sanity github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity ""
            ;;
        provisioner)
            release="$(version provisioner github.com/kubernetes-csi/external-provisioner/v6)"
            program provisioner csi-provisioner github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner \
                "-X main.version=$release"
            ;;
        resizer)
            release="$(version resizer github.com/kubernetes-csi/external-resizer/v2)"
            program resizer csi-resizer github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer "-X main.version=$release"
            ;;
        snapshotter)
            release="$(version snapshotter github.com/kubernetes-csi/external-snapshotter/v8)"
            local name
            for name in csi-snapshotter snapshot-controller; do
                program snapshotter "$name" "github.com/kubernetes-csi/external-snapshotter/v8/cmd/$name" "-X main.version=$release"
            done
            definitions
            ;;
        nodesidecars)
            program nodesidecars csi-node-driver-registrar . ""
            program nodesidecars livenessprobe . ""
            ;;
        mockdriver) program mockdriver mock-driver . "" ;;
        e2e)
            release="$(version e2e k8s.io/kubernetes)"
            stamp="-X k8s.io/component-base/version.gitVersion=$release -X k8s.io/client-go/pkg/version.gitVersion=$release"
            program e2e e2e.test . "$stamp" "" "test -c -vet=off"
            program e2e ginkgo github.com/onsi/ginkgo/v2/ginkgo ""
            program e2e agnhost k8s.io/kubernetes/test/images/agnhost ""
            ;;
        helm)
            release="$(version helm helm.sh/helm/v4)"
            program helm helm helm.sh/helm/v4/cmd/helm "-X helm.sh/helm/v4/internal/version.version=$release"
            ;;
        helm3)
            release="$(version helm3 helm.sh/helm/v3)"
            program helm3 helm3 helm.sh/helm/v3/cmd/helm "-X helm.sh/helm/v3/internal/version.version=$release"
            ;;
        promtool) program promtool promtool github.com/prometheus/prometheus/cmd/promtool "" ;;
        prometheus)
            release="$(version prometheus github.com/prometheus/prometheus)"
            program prometheus prometheus github.com/prometheus/prometheus/cmd/prometheus \
                "-X github.com/prometheus/common/version.Version=$release" remove_all_sd
            ;;
        dockerfile) program dockerfile dockerfile-lint . "" ;;
        actionlint)
            release="$(version actionlint github.com/rhysd/actionlint)"
            program actionlint actionlint github.com/rhysd/actionlint/cmd/actionlint "-X github.com/rhysd/actionlint.version=$release"
            ;;
        signing)
            release="$(version signing github.com/sigstore/cosign/v3)"
            program signing cosign github.com/sigstore/cosign/v3/cmd/cosign "-X sigs.k8s.io/release-utils/version.gitVersion=$release"
            program signing crane github.com/google/go-containerregistry/cmd/crane ""
            ;;
        translation) program translation translate-in-tree . "" ;;
        older) older ;;
    esac
    exec 9>&-
}

parts=("$@")
((${#parts[@]})) || parts=(kubernetes kubernetes-last kubelet containerd debian peers provisioner resizer snapshotter nodesidecars mockdriver e2e helm helm3 promtool prometheus dockerfile actionlint signing translation older)
for part in "${parts[@]}"; do build "$part"; done

# The folders to look in, first match first.
path="${KUBEBUILDER_ASSETS:+$KUBEBUILDER_ASSETS:}${NODE_SIDECARS:+$NODE_SIDECARS:}"
for part in "${parts[@]}"; do path+="$(folder "$part"):"; done
echo "${path%:}"
