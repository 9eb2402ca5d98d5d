//! The CSI specification's messages, generated from `proto/csi.proto` by `crates/base/build.rs`, and those of the kubelet's plugin
//! registration, from `proto/pluginregistration.proto`.
//!
//! Messages with secret fields print them stripped: see `redact`.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]

tonic::include_proto!("csi.v1");
include!(concat!(env!("OUT_DIR"), "/csi_redacted_debug.rs"));

/// What the kubelet asks a plugin's registration socket.
pub mod pluginregistration {
    tonic::include_proto!("pluginregistration");
}
