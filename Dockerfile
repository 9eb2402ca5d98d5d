# syntax=docker/dockerfile:1
# check=error=true
#
# The image: one static binary on distroless/static. No shell, no libc, no package of a distribution, user 65532.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max \
#     --build-arg REVISION="$(git rev-parse HEAD)" --build-arg SOURCE=https://YOUR.FORGE/csi-control-plane \
#     --tag REGISTRY/csi-control-plane:0.1.0 --push .
#
# Both platforms are compiled on the machine's own (no emulation). The binary carries the list of the crates that it is
# made of (cargo-auditable): the SBOM that `--sbom=true` attaches is read from it, and so can any scanner later.
#
# Both base images are named by digest, and renewed by Dependabot. The first names the one Rust version of the project, which
# `.ci/release rust` reads for the gate and for the binaries of a release.

# The tools, once for both platforms.
FROM --platform=$BUILDPLATFORM docker.io/library/rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS tools
RUN cargo install --locked cargo-chef@0.1.78 cargo-auditable@0.7.7
WORKDIR /src

# What the dependencies are, and nothing that changes with the code.
FROM tools AS recipe
COPY . .
RUN cargo chef prepare --recipe-path /recipe.json

FROM tools AS build
ARG BUILDARCH
ARG TARGETARCH
# The target, and a C compiler for it: one crate has assembler and C. Rust brings musl itself, and its linker's start files.
RUN <<'SETUP'
set -eu
case "$TARGETARCH" in
    amd64) target=x86_64-unknown-linux-musl gnu=x86-64-linux-gnu compiler=x86_64-linux-gnu-gcc ;;
    arm64) target=aarch64-unknown-linux-musl gnu=aarch64-linux-gnu compiler=aarch64-linux-gnu-gcc ;;
    *) echo "no image for $TARGETARCH" >&2 && exit 1 ;;
esac
if [ "$BUILDARCH" != "$TARGETARCH" ]; then
    apt-get update
    apt-get install --yes --no-install-recommends "gcc-$gnu" "libc6-dev-$TARGETARCH-cross"
    rm -rf /var/lib/apt/lists/*
fi
rustup target add "$target"
variable=$(echo "$target" | tr a-z- A-Z_)
{
    echo "export CARGO_BUILD_TARGET=$target"
    echo "export CC_$(echo "$target" | tr - _)=$compiler"
    echo "export CARGO_TARGET_${variable}_LINKER=$compiler"
} > /etc/build.env
SETUP
# The dependencies: a layer that stands until Cargo.lock changes.
COPY --from=recipe /recipe.json /recipe.json
RUN . /etc/build.env && cargo chef cook --locked --release --no-default-features --bin csi-control-plane --recipe-path /recipe.json
COPY . .
# Without the sandbox. The commit stands here, because what comes before it does not change with it.
ARG REVISION=""
RUN . /etc/build.env && CSI_CONTROL_PLANE_COMMIT="$REVISION" cargo auditable build --locked --release --no-default-features --bin csi-control-plane \
    && cp "target/$CARGO_BUILD_TARGET/release/csi-control-plane" /csi-control-plane

FROM gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab
# Of which commit, and where its source is: only who builds knows.
ARG VERSION=0.1.0 REVISION="" SOURCE=""
LABEL org.opencontainers.image.title="csi-control-plane" \
      org.opencontainers.image.description="One process beside a CSI driver, in the place of csi-attacher, csi-provisioner, csi-resizer and csi-snapshotter" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
COPY --from=build /csi-control-plane /csi-control-plane
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/csi-control-plane"]
CMD ["--help"]
