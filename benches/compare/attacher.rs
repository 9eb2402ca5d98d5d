//! The attacher of a driver that attaches at once: played by the bench, beside contenders that make attachments and leave the rest to it.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use serde_json::json;

use crate::counted::{Requests, key};
use crate::stage::if_there;
use crate::workload::attach::ATTACHMENTS;
use crate::write::merge;

/// As many at once as csi-attacher has workers.
const AT_ONCE: usize = 10;

/// Attaches each of these attachments. Its requests count as the bench's own.
pub(crate) async fn attach(client: kube::Client, own: Arc<Mutex<Requests>>, made: UnboundedReceiver<String>) {
    let attached = json!({ "status": { "attached": true } });
    let attach = |name: String| {
        let request = merge(ATTACHMENTS, &name, "/status", &attached);
        if_there(&client, &own, key("PATCH", ATTACHMENTS, "/status"), request)
    };
    made.map(attach).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
}
