//! The handler for a driver that has nothing to attach: it says so in the status, and asks nobody.
//!
//! Unlike the Go sidecar's, it also lets go of what a former version of the driver, which could attach, left behind: our
//! finalizer on attachments and volumes (spec 2.3).

use std::sync::Arc;

use serde_json::json;

use crate::cluster::patch::Guard;
use crate::queue::{Outcome, Ticket};

use super::attachment::Direction;
use super::context::Context;
use super::error::AttemptError;
use super::handler::Stop;
use super::perform;

/// Works one ticket of the attachment queue.
pub(super) async fn handle(cx: Arc<Context>, ticket: Ticket<String>) -> Outcome {
    let Some(now) = cx.find(ticket.key()) else { return Outcome::Forget };
    let attachment = &now.attachment;
    ticket.span().record("operation", attachment.direction.label());
    now.join_trace(&ticket);
    let result = match attachment.direction {
        Direction::Detach if attachment.has_our_finalizer => perform::release(&cx, &now).await.map(|_| true),
        Direction::Attach if !attachment.attached => {
            let status = json!({ "attached": true, "attachmentMetadata": null, "attachError": null });
            perform::patch_status(&cx, &now, Guard::Uid, &status, AttemptError::RecordAttached).await.map(|()| true)
        }
        Direction::Attach | Direction::Detach => Ok(false),
    };
    match result {
        Ok(did_something) => {
            cx.report_success(&ticket, &now, did_something);
            Outcome::Settled
        }
        Err(Stop::Failed(error)) if error.says_gone() => Outcome::Retry { cap: None },
        Err(Stop::Failed(error)) => cx.report_failure(&ticket, &now, &error).await,
        Err(stop) => stop.outcome(),
    }
}
