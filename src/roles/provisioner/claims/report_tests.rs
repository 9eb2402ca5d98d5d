//! What people are told of a claim that fails: the same words in its Event, on the status page and in the log.

use k8s_openapi::api::core::v1::Event;
use serde_json::json;
use tonic::Code;

use crate::cluster::names;
use crate::roles::kit::fixtures::Warnings;
use crate::roles::kit::served::Served;
use crate::roles::provisioner::REGISTRATION;
use crate::sandbox::driver::{Action, Fault, Method, Profile};

#[tokio::test(start_paused = true)]
async fn event_status_page_and_log_say_the_same_of_a_failure_also_that_an_infeasible_claim_is_tried_again_rarely() {
    let infeasible = " (infeasible: retried rarely until the claim or its class changes)";
    for (code, suffix) in [(Code::InvalidArgument, infeasible), (Code::ResourceExhausted, "")] {
        let world = Served::new(&REGISTRATION, &json!({}), Profile::default()).await;
        world.write_events();
        world.testbed.driver.inject(Fault::on(Method::CreateVolume, Action::fail(code, "no such tier")));
        let driver = &world.context.driver.name;
        let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "gold" },
            "provisioner": driver });
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "namespace": "default", "name": "claim",
                "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: driver } },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "gold",
                "resources": { "requests": { "storage": "1Gi" } } } });
        for object in [class, claim] {
            world.testbed.api.create_value(object).unwrap();
        }
        let warnings = Warnings::begin();
        world.lead();
        let events = |world: &Served| world.testbed.api.list::<Event>("default").unwrap();
        let is_told = |event: &Event| event.reason.as_deref() == Some("ProvisioningFailed");
        world.until("an Event", |world| events(world).iter().any(is_told)).await;
        let expected = format!("rpc error: code = {code:?} desc = no such tier{suffix}");
        let event = events(&world).into_iter().find(is_told).and_then(|event| event.message);
        assert_eq!(event, Some(format!("failed to provision volume: {expected}")));
        let shown: Vec<_> = world.work().into_iter().filter_map(|item| item.last_error).collect();
        assert_eq!(shown, [expected.as_str()]);
        assert_eq!(warnings.errors().first(), Some(&expected));
        world.testbed.tear_down().await;
    }
}
