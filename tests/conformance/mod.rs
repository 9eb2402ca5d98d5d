//! The behaviours of Kubernetes on which we rely: one list, tested with the sandbox's API and, by `just cluster`, with a real one.
//!
//! Each case is a conversation over plain HTTP. Its assertions are in its code; in addition, the whole conversation is
//! compared with a transcript in `snapshots/`, which was recorded from a real kube-apiserver (`just cluster` compares
//! it with a real one again, and `INSTA_UPDATE=always just cluster` records changes). So the sandbox cannot drift from
//! the real server unnoticed.

mod access;
mod cases;
mod claims;
mod classes;
mod cluster;
mod compaction;
mod contents;
mod deleting;
mod dialogue;
mod forms;
mod installed;
mod lists;
mod objects;
mod patches;
mod protection;
mod provisioned;
mod quotas;
mod sandbox;
mod standing;
mod statuses;
mod strategic;
mod transcript;
mod validation;
mod watches;
mod writes;

use http::Method;
use serde_json::Value;

use dialogue::{Answer, Case};

/// A POST that is not in the transcript: its answer is never the same twice.
async fn untold(case: &Case, path: &str, body: Value) -> Answer {
    case.ask(&Method::POST, path, "application/json", &[], Some(&body)).await
}

/// A GET that is not in the transcript.
async fn fetch(case: &Case, path: &str) -> Answer {
    case.ask(&Method::GET, path, "", &[], None).await
}
