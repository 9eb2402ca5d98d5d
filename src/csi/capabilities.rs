//! The driver's capabilities. Pure. They are read once per connection and compared with the earlier ones, because the
//! roles depend on them. Unknown numbers, from a newer driver, are kept and shown, but not used.

use std::collections::BTreeSet;

use crate::proto::plugin_capability::{self, service, volume_expansion};
use crate::proto::{
    ControllerGetCapabilitiesResponse, GetPluginCapabilitiesResponse, GroupControllerGetCapabilitiesResponse,
    controller_service_capability, group_controller_service_capability,
};

/// The RPC groups of the Controller service that a driver may offer.
pub use crate::proto::controller_service_capability::rpc::Type as ControllerRpc;
/// The RPC groups of the `GroupController` service that a driver may offer.
pub use crate::proto::group_controller_service_capability::rpc::Type as GroupRpc;
/// The services and properties that a driver may offer.
pub use crate::proto::plugin_capability::service::Type as PluginService;

/// A driver's capabilities. The order does not matter for equality.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    services: BTreeSet<i32>,
    expansions: BTreeSet<i32>,
    controller: BTreeSet<i32>,
    groups: BTreeSet<i32>,
}

impl Capabilities {
    /// Built from the driver's responses; `None` if it has no Controller service. Empty entries are skipped.
    pub fn from_responses(
        plugin: &GetPluginCapabilitiesResponse,
        controller: Option<&ControllerGetCapabilitiesResponse>,
    ) -> Self {
        let mut capabilities = Self::default();
        for entry in plugin.capabilities.iter().filter_map(|c| c.r#type) {
            match entry {
                plugin_capability::Type::Service(service) => capabilities.services.insert(service.r#type),
                plugin_capability::Type::VolumeExpansion(kind) => capabilities.expansions.insert(kind.r#type),
            };
        }
        for entry in controller.into_iter().flat_map(|c| &c.capabilities).filter_map(|c| c.r#type) {
            let controller_service_capability::Type::Rpc(rpc) = entry;
            capabilities.controller.insert(rpc.r#type);
        }
        capabilities
    }

    /// With what the driver's `GroupController` service offers.
    #[must_use]
    pub fn with_groups(mut self, groups: &GroupControllerGetCapabilitiesResponse) -> Self {
        for entry in groups.capabilities.iter().filter_map(|c| c.r#type) {
            let group_controller_service_capability::Type::Rpc(rpc) = entry;
            self.groups.insert(rpc.r#type);
        }
        self
    }

    /// Whether the Controller service offers this group of RPCs.
    pub fn has(&self, rpc: ControllerRpc) -> bool {
        self.controller.contains(&(rpc as i32))
    }

    /// Whether the driver has this service or property.
    pub fn has_service(&self, service: PluginService) -> bool {
        self.services.contains(&(service as i32))
    }

    /// Whether the driver has a Controller service at all.
    pub fn controller_service(&self) -> bool {
        self.has_service(PluginService::ControllerService)
    }

    /// Whether volumes are attached and detached by the driver.
    pub fn publish_unpublish(&self) -> bool {
        self.has(ControllerRpc::PublishUnpublishVolume)
    }

    /// Whether a volume can be attached read-only.
    pub fn publish_readonly(&self) -> bool {
        self.has(ControllerRpc::PublishReadonly)
    }

    /// Whether the driver lists its volumes.
    pub fn list_volumes(&self) -> bool {
        self.has(ControllerRpc::ListVolumes)
    }

    /// Whether the list says where each volume is attached.
    pub fn list_volumes_published_nodes(&self) -> bool {
        self.has(ControllerRpc::ListVolumesPublishedNodes)
    }

    /// Whether the driver knows the finer single-node access modes.
    pub fn single_node_multi_writer(&self) -> bool {
        self.has(ControllerRpc::SingleNodeMultiWriter)
    }

    /// Whether the driver can be asked for one volume.
    pub fn get_volume(&self) -> bool {
        self.has(ControllerRpc::GetVolume)
    }

    /// Whether the driver, of CSI 1.12 or before, says of a volume whether something is wrong with it.
    pub fn volume_condition(&self) -> bool {
        self.has(ControllerRpc::VolumeCondition)
    }

    /// Whether the driver, of CSI 1.13 or later, can be asked for the health of one volume.
    pub fn get_volume_health(&self) -> bool {
        self.has(ControllerRpc::GetVolumeHealth)
    }

    /// Whether the driver, of CSI 1.13 or later, lists the volumes whose health is not good.
    pub fn list_volume_health(&self) -> bool {
        self.has(ControllerRpc::ListVolumeHealth)
    }

    /// Whether the driver creates and deletes volumes.
    pub fn create_delete_volume(&self) -> bool {
        self.has(ControllerRpc::CreateDeleteVolume)
    }

    /// Whether the driver reports its free capacity.
    pub fn get_capacity(&self) -> bool {
        self.has(ControllerRpc::GetCapacity)
    }

    /// Whether the driver makes volumes larger by a call of the Controller service.
    pub fn expand_volume(&self) -> bool {
        self.has(ControllerRpc::ExpandVolume)
    }

    /// Whether the driver changes the attributes of a volume.
    pub fn modify_volume(&self) -> bool {
        self.has(ControllerRpc::ModifyVolume)
    }

    /// Whether the driver takes and deletes snapshots.
    pub fn create_delete_snapshot(&self) -> bool {
        self.has(ControllerRpc::CreateDeleteSnapshot)
    }

    /// Whether the driver lists its snapshots.
    pub fn list_snapshots(&self) -> bool {
        self.has(ControllerRpc::ListSnapshots)
    }

    /// Whether the driver can be asked for one snapshot.
    pub fn get_snapshot(&self) -> bool {
        self.has(ControllerRpc::GetSnapshot)
    }

    /// Whether the driver takes, deletes and tells of groups of snapshots.
    pub fn group_snapshots(&self) -> bool {
        self.groups.contains(&(GroupRpc::CreateDeleteGetVolumeGroupSnapshot as i32))
    }

    /// Whether a volume may not be accessible from all nodes.
    pub fn volume_accessibility_constraints(&self) -> bool {
        self.has_service(PluginService::VolumeAccessibilityConstraints)
    }

    /// Every capability by its name in the specification: services, then expansion, then RPC groups of both controller services.
    pub fn names(&self) -> Vec<String> {
        let services =
            self.services.iter().map(|n| named("", *n, service::Type::try_from(*n).ok().map(|t| t.as_str_name())));
        let expansions = self.expansions.iter().map(|n| {
            named("VOLUME_EXPANSION_", *n, volume_expansion::Type::try_from(*n).ok().map(|t| t.as_str_name()))
        });
        let controller =
            self.controller.iter().map(|n| named("", *n, ControllerRpc::try_from(*n).ok().map(|t| t.as_str_name())));
        let groups = self.groups.iter().map(|n| named("", *n, GroupRpc::try_from(*n).ok().map(|t| t.as_str_name())));
        services.chain(expansions).chain(controller).chain(groups).collect()
    }
}

#[cfg(test)]
impl Capabilities {
    /// A driver that offers these.
    pub(crate) fn offering(services: &[PluginService], rpcs: &[ControllerRpc]) -> Self {
        use crate::proto::{ControllerServiceCapability, PluginCapability};
        let service = |it: &PluginService| {
            let r#type = Some(plugin_capability::Type::Service(plugin_capability::Service { r#type: *it as i32 }));
            PluginCapability { r#type }
        };
        let rpc = |it: &ControllerRpc| {
            let rpc = controller_service_capability::Rpc { r#type: *it as i32 };
            ControllerServiceCapability { r#type: Some(controller_service_capability::Type::Rpc(rpc)) }
        };
        let plugin = GetPluginCapabilitiesResponse { capabilities: services.iter().map(service).collect() };
        let controller = ControllerGetCapabilitiesResponse { capabilities: rpcs.iter().map(rpc).collect() };
        Self::from_responses(&plugin, Some(&controller))
    }
}

fn named(prefix: &str, number: i32, name: Option<&'static str>) -> String {
    match name {
        Some(name) if number != 0 => format!("{prefix}{name}"),
        _ => format!("{prefix}UNKNOWN({number})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{ControllerServiceCapability, PluginCapability};

    fn plugin(services: &[i32], expansions: &[i32]) -> GetPluginCapabilitiesResponse {
        let services =
            services.iter().map(|n| plugin_capability::Type::Service(plugin_capability::Service { r#type: *n }));
        let expansions = expansions
            .iter()
            .map(|n| plugin_capability::Type::VolumeExpansion(plugin_capability::VolumeExpansion { r#type: *n }));
        let mut capabilities: Vec<_> =
            services.chain(expansions).map(|t| PluginCapability { r#type: Some(t) }).collect();
        capabilities.push(PluginCapability { r#type: None });
        GetPluginCapabilitiesResponse { capabilities }
    }

    fn controller(rpcs: &[i32]) -> ControllerGetCapabilitiesResponse {
        let rpc = |n: &i32| controller_service_capability::Type::Rpc(controller_service_capability::Rpc { r#type: *n });
        let mut capabilities: Vec<_> =
            rpcs.iter().map(|n| ControllerServiceCapability { r#type: Some(rpc(n)) }).collect();
        capabilities.insert(0, ControllerServiceCapability { r#type: None });
        ControllerGetCapabilitiesResponse { capabilities }
    }

    #[test]
    fn each_question_looks_at_its_own_capability() {
        type Question = fn(&Capabilities) -> bool;
        let questions: [(ControllerRpc, Question); 16] = [
            (ControllerRpc::PublishUnpublishVolume, Capabilities::publish_unpublish),
            (ControllerRpc::PublishReadonly, Capabilities::publish_readonly),
            (ControllerRpc::ListVolumes, Capabilities::list_volumes),
            (ControllerRpc::ListVolumesPublishedNodes, Capabilities::list_volumes_published_nodes),
            (ControllerRpc::SingleNodeMultiWriter, Capabilities::single_node_multi_writer),
            (ControllerRpc::CreateDeleteVolume, Capabilities::create_delete_volume),
            (ControllerRpc::GetCapacity, Capabilities::get_capacity),
            (ControllerRpc::ExpandVolume, Capabilities::expand_volume),
            (ControllerRpc::ModifyVolume, Capabilities::modify_volume),
            (ControllerRpc::CreateDeleteSnapshot, Capabilities::create_delete_snapshot),
            (ControllerRpc::ListSnapshots, Capabilities::list_snapshots),
            (ControllerRpc::GetSnapshot, Capabilities::get_snapshot),
            (ControllerRpc::GetVolume, Capabilities::get_volume),
            (ControllerRpc::VolumeCondition, Capabilities::volume_condition),
            (ControllerRpc::GetVolumeHealth, Capabilities::get_volume_health),
            (ControllerRpc::ListVolumeHealth, Capabilities::list_volume_health),
        ];
        for (offered, _) in questions {
            let capabilities = Capabilities::from_responses(&plugin(&[1], &[]), Some(&controller(&[offered as i32])));
            assert!(capabilities.controller_service() && capabilities.has(offered));
            for (rpc, question) in questions {
                assert_eq!(question(&capabilities), rpc == offered, "{rpc:?} of {offered:?}");
            }
        }
    }

    #[test]
    fn groups_of_snapshots_are_a_capability_of_the_group_controller() {
        use crate::proto::GroupControllerServiceCapability;
        use group_controller_service_capability::{Rpc, Type};
        let of = |numbers: &[i32]| {
            let entry = |n: &i32| GroupControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: *n })) };
            let capabilities = numbers.iter().map(entry).chain([GroupControllerServiceCapability { r#type: None }]);
            let groups = GroupControllerGetCapabilitiesResponse { capabilities: capabilities.collect() };
            Capabilities::from_responses(&plugin(&[3], &[]), None).with_groups(&groups)
        };
        let number = GroupRpc::CreateDeleteGetVolumeGroupSnapshot as i32;
        assert!(of(&[number]).group_snapshots() && !of(&[77]).group_snapshots());
        assert_eq!(of(&[number]).names()[1..], ["CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"]);
    }

    #[test]
    fn a_driver_without_a_controller_offers_none_of_its_rpcs() {
        let capabilities = Capabilities::from_responses(&plugin(&[2], &[1]), None);
        assert!(!capabilities.controller_service() && !capabilities.publish_unpublish());
        assert!(capabilities.volume_accessibility_constraints());
    }

    #[test]
    fn unknown_numbers_are_kept_by_number_r40() {
        let capabilities = Capabilities::from_responses(&plugin(&[1, 99], &[1, 7]), Some(&controller(&[2, 42, 0, -1])));
        assert_eq!(
            capabilities.names(),
            [
                "CONTROLLER_SERVICE",
                "UNKNOWN(99)",
                "VOLUME_EXPANSION_ONLINE",
                "VOLUME_EXPANSION_UNKNOWN(7)",
                "UNKNOWN(-1)",
                "UNKNOWN(0)",
                "PUBLISH_UNPUBLISH_VOLUME",
                "UNKNOWN(42)",
            ]
        );
    }

    #[test]
    fn order_and_repetition_change_nothing_but_any_new_number_does() {
        let of = |rpcs: &[i32]| Capabilities::from_responses(&plugin(&[1], &[]), Some(&controller(rpcs)));
        assert_eq!(of(&[2, 3]), of(&[3, 2, 3]));
        assert_ne!(of(&[2, 3]), of(&[2]));
        assert_ne!(of(&[2]), of(&[2, 42]));
    }
}
