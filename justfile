# The recipes that people and CI both call. `just` alone lists them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Where cargo builds.
target := absolute_path(env("CARGO_TARGET_DIR", "target"))

# What `just cluster` leaves to other recipes.
elsewhere := "--skip process:: --skip sandbox_only:: --skip chart:: --skip image:: --skip kubectl:: --skip kubernetes_suite:: --skip node:: --skip page:: --skip translation::"

_default:
    @just --list --unsorted

# All checks that need only Rust and cargo-deny. `.ci/run`, the gate, plays this and `smoke`.
check: format lint docs dependencies test

# On a real control plane: each role, a hand-over and the chart's rights (needs Go). `.ci/smoke` lists the tests.
smoke:
    .ci/smoke

# `just prove --stale` names the stages that have changed since they were green here; `.ci/stages` lists all of them.
# All other proofs whose inputs have changed since they were green here, or the named stages: `just prove cluster chart`.
prove *args:
    .ci/prove {{ args }}

# The README's test command.
test *args:
    cargo test --locked --workspace {{ args }}

# `cargo test` so many times beside two busy loops for each core: no test may depend on a quiet machine. Each run ends in a line.
stress-tests times="20":
    #!/usr/bin/env bash
    set -euo pipefail
    cargo test --locked --workspace --no-run
    log="$(mktemp)" loops=() failed=0
    trap 'kill "${loops[@]}"; rm -f "$log"' EXIT
    for ((i = 0; i < 2 * $(nproc); i++)); do
        while :; do :; done &
        loops+=($!)
    done
    for ((run = 1; run <= {{ times }}; run++)); do
        begun=$SECONDS verdict=green
        cargo test --locked --workspace --no-fail-fast >"$log" 2>&1 || { verdict=FAILED && failed=1 && cat "$log"; }
        printf 'run %2d: %s, %s s: %s\n' "$run" \
            "$(awk '/^test result: / { passed += $4; failed += $6 } END { printf "%d passed, %d failed", passed, failed }' "$log")" \
            "$((SECONDS - begun))" "$verdict"
    done
    exit "$failed"

# Formatting, checked.
format:
    cargo fmt --all --check

# `--all-targets` selects the targets of `cargo test` and `cargo bench`. The second line adds those that only their names select.
# Clippy with warnings denied, over all targets and features.
lint:
    cargo clippy --locked --workspace --all-features --all-targets -- -D warnings
    cargo clippy --locked --all-features --test '*' --bench '*' -- -D warnings

# Clippy for the code that is in the image.
lint-image:
    cargo clippy --locked --no-default-features --bins -- -D warnings

# Writes docs/configuration.md, from config/reference.yaml and the schema, and docs/metrics.md, from the catalogue.
docs-update:
    DOCS_UPDATE=1 cargo test --locked --test rules -- reference:: catalogue::

# The documentation, built without a warning.
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items

# Licences, sources, banned and duplicate crates. Advisories need the network: `cargo deny check advisories`.
dependencies:
    cargo deny --locked check bans licenses sources

# The workflows of the forge, by actionlint (needs Go), without this machine's shellcheck, whose version differs elsewhere.
workflows:
    actionlint="$(tests/cluster/build.sh actionlint)" && "${actionlint%%:*}/actionlint" -shellcheck= -pyflakes= .github/workflows/*.yaml
    @echo "$(ls .github/workflows/*.yaml | wc -l) workflows checked"

# The sandbox's demo, to its end.
demo:
    cargo run --locked --quiet -- sandbox

# The deterministic simulation over many seeds: `just simulate 10000`.
simulate seeds="2000":
    SIMULATION_SEEDS={{ seeds }} cargo test --locked --profile simulation --test simulation -- --nocapture --skip crash::

# One seed of the simulation, step by step.
replay seed:
    SIMULATION_SEED={{ seed }} cargo test --locked --profile simulation --test simulation -- --nocapture --ignored one_seed

# The daemon dies at every exchange of every scenario, in three ways, and its successor at every exchange of the recovery.
crash:
    CRASH_EVERYTHING=1 cargo test --locked --profile simulation --test simulation -- --nocapture --test-threads 1 crash::

# One death, step by step: `just crash-one 'clone; deleted meanwhile' '4103 Frozen'`.
crash-one scenario at="":
    CRASH_SCENARIO='{{ scenario }}' CRASH_AT='{{ at }}' cargo test --locked --profile simulation --test simulation -- --nocapture --ignored one_crash

# `just mutants src/queue/state.rs` runs the tests of the file's folder, `just mutants src/roles/kit/reconcile.rs roles::` the named ones.
# `MUTANTS="--re add"` chooses among the changes, as cargo-mutants does.
# Changes one file in many small ways, one at a time, and names the changes that no unit test notices (needs cargo-mutants).
mutants file *tests:
    #!/usr/bin/env bash
    set -euo pipefail
    if ! command -v cargo-mutants >/dev/null; then
        echo "just mutants needs cargo-mutants: cargo install --locked cargo-mutants" >&2
        exit 1
    fi
    [[ -f "{{ file }}" ]] || { echo "no such file: {{ file }}" >&2 && exit 1; }
    tests="{{ tests }}"
    if [[ -z $tests ]]; then
        tests="$(dirname "{{ file }}")/"
        tests="${tests#crates/*/}" tests="${tests#src/}" tests="${tests//\//::}"
    fi
    # Copies of the tree are changed, and what is built from them stays outside of it, for the next file. No test of these takes
    # long: one that does waits for what the change has taken away.
    cache="${CSI_CONTROL_PLANE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/csi-control-plane}/mutants"
    mkdir -p "$cache"
    export CARGO_TARGET_DIR="$cache/target" CARGO_PROFILE_DEV_DEBUG=false
    cargo mutants --file "{{ file }}" --output "$cache" --timeout 120 --build-timeout 600 --colors never ${MUTANTS:-} \
        --cargo-arg=--lib --cargo-arg=--locked -- -- $tests

# Runs the micro-benches.
bench *args:
    cargo bench --locked {{ args }}

# Builds the micro-benches and the comparison (needs Go), and runs each once: few objects, nothing optimised.
bench-check:
    cargo bench --locked --profile dev -- --test
    CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes peers provisioner resizer snapshotter)" cargo bench --locked --profile dev --bench compare -- \
        --binary '{{ target }}/debug/csi-control-plane' --results '{{ target }}/tmp/compare' --rounds 1 --count 20 --segments 5 --bound 5s \
        --workloads attach,resize,capacity,node --scenarios burst,refresh,node --contenders csi-control-plane,csi-attacher,csi-resizer-tuned,bare

# Builds the daemon without the sandbox, for this machine. `just image` builds the image's.
release:
    cargo build --locked --release --no-default-features

# A node's sidecar and an idle process with all roles are traced (needs Go, and qemu-user-static).
# Writes `.cargo/order.ld`: what they execute lies first in the image's binary.
order:
    #!/usr/bin/env bash
    set -euo pipefail
    target="$(uname -m)-unknown-linux-musl"
    [[ -d "$(rustc --print target-libdir --target "$target")" ]] || rustup target add "$target"
    variable="${target//-/_}"
    export "CC_$variable=cc" "CARGO_TARGET_${variable^^}_LINKER=cc"
    cargo rustc --locked --release --no-default-features --bin csi-control-plane --target "$target" -- -C strip=none
    export CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes peers provisioner resizer snapshotter)"
    cargo bench --locked --profile dev --bench compare -- --order .cargo/order.ld \
        --binary "{{ target }}/$target/release/csi-control-plane" --contenders csi-control-plane \
        --rounds 1 --workloads node,all,attach,provision,resize,snapshot --scenarios node,idle,burst --idle 0 --count 50

# Archives, SBOMs, an image and a chart in a registry on the loopback, signed with a key that is made for it, and verified.
# Plays a release to its end, without a forge or a registry (needs Go, jq, cargo-auditable): `.ci/rehearse`.
release-rehearsal: _image-binary
    CARGO_TARGET_DIR='{{ target }}' .ci/rehearse '{{ target }}/image-binaries'

# Packs the committed sources with those of all crates, for a build without a network: `csi-control-plane-VERSION-vendored.tar.gz` in the target folder.
vendor:
    #!/usr/bin/env bash
    set -euo pipefail
    name="csi-control-plane-$(cargo pkgid --locked | sed 's/.*[#@]//')-vendored"
    folder="$(mktemp -d)"
    trap 'rm -rf "$folder"' EXIT
    mkdir -p "$folder/$name" '{{ target }}'
    git archive HEAD | tar -x -C "$folder/$name"
    # Cargo prints the configuration that makes it read the folder and nothing else.
    (cd "$folder/$name" && cargo vendor --locked --versioned-dirs vendor >vendored.toml && cat vendored.toml >>.cargo/config.toml && rm vendored.toml)
    # The same commit makes the same archive.
    tar -C "$folder" --sort=name --mode=u+rw,go=rX --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -c "$name" |
        gzip --no-name >"{{ target }}/$name.tar.gz"
    echo "{{ target }}/$name.tar.gz"

# `tests/cluster`, and the list and scenarios of `tests/it`, on a real control plane (needs Go; its programs are built once): `just cluster attach`.
cluster *args:
    GROUND=cluster CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes peers provisioner resizer snapshotter mockdriver older)" \
        cargo test --locked --no-fail-fast --test it --test outside -- {{ args }} {{ elsewhere }}

# The sandbox's API, which `conformance::` compares, is that of the newer one, whose programs `assets::` has built; and the older one stores
# no health of claims.
# The same on the minor version of Kubernetes before.
cluster-last *args:
    GROUND=cluster CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes-last peers provisioner resizer snapshotter mockdriver older)" \
        cargo test --locked --no-fail-fast --test it --test outside -- {{ args }} --skip assets:: --skip conformance:: --skip health_kept:: {{ elsewhere }}

# The translation of in-tree volumes beside the Go library's, and YAML beside kubectl's reader (needs Go): `TRANSLATIONS=100000 just translation`.
translation:
    CLUSTER_PROGRAMS="$(tests/cluster/build.sh translation)" cargo test --locked --test outside -- translation::

# `SOAK_MINUTES=30 just node soak` goes on for longer.
# Pods that mount, on nodes with a real kubelet and a real container runtime (needs Linux, root and Go): `just node mounted`.
node *args:
    GROUND=cluster CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes kubelet containerd debian helm peers provisioner resizer snapshotter nodesidecars older)" \
        cargo test --locked --config "target.'cfg(all())'.runner=['$PWD/tests/node/inside.sh']" --test outside -- \
        {{ if args == "" { "node::" } else { prepend("node::", args) } }} --skip chart:: --test-threads 1

# `--focus REGEX` and `--labels FILTER` choose specs; `--sidecars` has the Go sidecars in the daemon's place, and `--turns` both
# in turn, with the daemon killed, in specs of two minutes or more. With the program of csi-driver-host-path in CSI_DRIVER_HOST_PATH,
# that driver is on one node.
# Kubernetes' own External Storage suite with the demo driver, on three nodes as `just node` has them (needs Linux, root and Go).
kubernetes-suite *args:
    GROUND=cluster KUBERNETES_SUITE={{ quote(args) }} \
        CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes kubelet containerd debian helm snapshotter e2e ${CSI_DRIVER_HOST_PATH:+nodesidecars} {{ if args =~ "--(sidecars|turns)" { "peers provisioner resizer" } else { "" } }})" \
        cargo test --locked --config "target.'cfg(all())'.runner=['$PWD/tests/node/inside.sh']" --test outside -- \
        kubernetes_suite:: --nocapture --test-threads 1
# The same without the specs that take minutes, that want to be alone, or that want a feature of the driver.
kubernetes-suite-fast: (kubernetes-suite "--fast")

# The sandbox with the real `kubectl` (needs Go).
kubectl:
    CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes)" cargo test --locked --test outside -- kubectl::

# Lints and renders the chart, compares its rights with `check`, plays its alerts, and installs it on a real API server (needs Go): `just chart rights`.
chart *modules:
    GROUND=cluster CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes helm helm3 promtool prometheus dockerfile)" \
        cargo test --locked --test outside -- {{ if modules == "" { "chart::" } else { prepend("chart::", modules) } }}

# Writes the files that follow from the chart and the daemon: values.schema.json, files/defaults.yaml and the manifests in deploy/.
chart-update:
    CHART_UPDATE=1 CLUSTER_PROGRAMS="$(tests/cluster/build.sh helm)" cargo test --locked --test outside -- chart::kept chart::values::the_schema

# The status page in a real browser, and the README's pictures of it (needs Chromium, on PATH or named in CHROMIUM).
page *modules:
    cargo test --locked --test outside -- {{ if modules == "" { "page::" } else { prepend("page::", modules) } }}

# Takes new pictures of the status page: docs/images.
page-images:
    PAGE_IMAGES="$PWD/docs/images" cargo test --locked --test outside -- page::images

# `just image amd64 arm64` tests both. Another platform than this machine's needs a compiler for it, and qemu-user-static.
# Tests the image's binary in an otherwise empty root (needs cargo-auditable), for this machine's platform or the named ones.
image *platforms: (_image-binary platforms)
    IMAGE_BINARIES="$(cat '{{ target }}/image-binaries')" cargo test --locked --test outside -- image::

# Builds the image's binary as the Dockerfile does, and lists what it built in `image-binaries` of the target folder.
_image-binary *platforms:
    #!/usr/bin/env bash
    set -euo pipefail
    case "$(uname -m)" in
        x86_64) own=amd64 ;;
        aarch64 | arm64) own=arm64 ;;
        *) own="$(uname -m)" ;;
    esac
    binaries=()
    for platform in {{ if platforms == "" { '"$own"' } else { platforms } }}; do
        case "$platform" in
            amd64) target=x86_64-unknown-linux-musl gnu=x86-64-linux-gnu compiler=x86_64-linux-gnu-gcc ;;
            arm64) target=aarch64-unknown-linux-musl gnu=aarch64-linux-gnu compiler=aarch64-linux-gnu-gcc ;;
            *) echo "no image for $platform: name amd64, arm64 or both" >&2 && exit 1 ;;
        esac
        if [[ $platform == "$own" ]]; then
            # The machine's own compiler does: Rust brings musl itself, and its linker's start files.
            compiler=cc
        elif ! { command -v "$compiler" && command -v "qemu-${target%%-*}-static"; } >/dev/null; then
            echo "The image for $platform needs $compiler and, to be run, qemu-${target%%-*}-static. On Debian:" >&2
            echo "    apt-get install gcc-$gnu libc6-dev-$platform-cross qemu-user-static" >&2
            echo "\`just image\` builds this machine's own." >&2
            exit 1
        fi
        [[ -d "$(rustc --print target-libdir --target "$target")" ]] || rustup target add "$target"
        variable="${target//-/_}"
        export "CC_$variable=$compiler" "CARGO_TARGET_${variable^^}_LINKER=$compiler"
        cargo auditable build --locked --release --no-default-features --bin csi-control-plane --target "$target"
        binaries+=("$platform={{ target }}/$target/release/csi-control-plane")
    done
    printf '%s\n' "${binaries[@]}" >'{{ target }}/image-binaries'

# `just compare --help` lists the options. It writes `benches/compare/results`, and the tables in README.md and benches/README.md.
# Compares the image's binary with the Go sidecars on a real control plane (needs Go, cargo-auditable).
compare *args: _image-binary
    CLUSTER_PROGRAMS="$(tests/cluster/build.sh kubernetes peers provisioner resizer snapshotter)" cargo bench --locked --profile simulation --bench compare -- {{ args }}
