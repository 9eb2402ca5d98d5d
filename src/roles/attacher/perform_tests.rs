//! What may not be written is said, not passed over: the caller would look again, see no change, and try for ever.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::cluster::{Api, ApiOptions, Caches, ClientOptions, Clients, ClusterAccess, EventRecorder, EventSource};
use crate::csi::{Csi, CsiOptions};
use crate::election::Term;
use crate::process::{Clock, Entropy, Tasks};
use crate::roles::attacher::AttacherSection;
use crate::roles::attacher::attachment::Attachment;
use crate::roles::attacher::decide::Rules;
use crate::roles::attacher::desk::Known;
use crate::roles::attacher::report::Reporter;
use crate::sandbox::driver::Profile;
use crate::sandbox::network::Network;
use crate::sandbox::stage::{Ground, Stage};
use crate::telemetry::Meter;

#[tokio::test(start_paused = true)]
async fn r52_a_status_that_may_not_be_written_any_more_ends_the_attempt() {
    let (clock, entropy, meter) = (Clock::system(), Entropy::seeded(1), Meter::new());
    let stage = Stage::set(Ground::Network(Network::new()), Profile::default(), clock, entropy.clone()).await.unwrap();
    let csi = Csi::new(stage.driver_dial("me"), CsiOptions::default(), meter.clone(), clock, entropy.clone());
    let (tasks, _ends) = Tasks::new("test");
    tasks.spawn("csi", csi.clone().run());
    let driver = csi.state().wait_for(|state| state.ready().is_some()).await.unwrap().ready().unwrap().clone();
    let access = ClusterAccess::Endpoint { dial: stage.api_dial("me"), token: None };
    let clients = Clients::connect(&access, &ClientOptions::default()).await.unwrap();
    let api = Api::new(clients.work, &ApiOptions::default(), meter.clone());
    let source = EventSource { component: driver.name.clone(), instance: "me".into() };
    let (caches, term) = (Caches::new(), Term::lapsed(clock));
    let rules = Rules {
        driver: driver.name.clone(),
        finalizer: names::finalizer(&driver.name),
        publish_readonly: true,
        multi_writer: true,
        default_fs_type: String::new(),
    };
    let desk = Desk {
        rules,
        section: AttacherSection::default(),
        known: Known { attachments: caches.want(), volumes: caches.want(), nodes: caches.want() },
        term: term.clone(),
        api: term.fence(api.clone()),
        driver: term.fence(driver.client.clone()),
        operations: driver.operations.clone(),
        events: EventRecorder::new(api, source, meter.clone(), clock, entropy),
        reporter: Reporter::new(meter, driver.name.clone()),
        clock,
    };
    let object: VolumeAttachment = serde_json::from_value(json!({
        "metadata": { "name": "csi-1", "uid": "u1", "finalizers": [desk.rules.finalizer] },
        "spec": { "attacher": driver.name, "nodeName": "node-1", "source": { "persistentVolumeName": "pv-1" } },
    }))
    .unwrap();
    let attachment = Attachment::parse(&object, &desk.rules.finalizer);
    let now = Objects { attachment, object: Arc::new(object), volume: None, node: None };
    let context = BTreeMap::from([("path".to_owned(), "/dev/a".to_owned())]);
    assert!(matches!(record_attached(&desk, &now, &context).await, Err(Stop::TermOver)));
    assert!(matches!(record_detached(&desk, &now).await, Err(Stop::TermOver)));
    assert!(matches!(release(&desk, &now).await, Err(Stop::TermOver)));
    assert_eq!(stage.api.audit().entries().len(), 0);
    stage.strike().await;
}
