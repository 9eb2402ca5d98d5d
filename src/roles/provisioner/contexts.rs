//! Makes the queues of a term, and the contexts of its rooms.

use std::sync::Arc;

use tracing::info_span;

use crate::csi::capabilities::ControllerRpc;
use crate::election::Term;
use crate::journal::Journal;
use crate::roles::csi_attacher;
use crate::roles::kit::{EventsMode, Memory, TermScope, queues};
use crate::roles::role::RoleContext;

use super::capacity::CapacityInvalidation;
use super::claim::ClaimKey;
use super::claims::context::{ClaimsContext, RequestJournal, VolumeMarks};
use super::claims::decide::Rules;
use super::claims::entry::Entry;
use super::claims::histories::Histories;
use super::claims::request::{NameRule, ProvisionRules};
use super::context::{Context, Stores};
use super::deletion::context::DeletionContext;
use super::deletion::policy as deletion;
use super::node::deployment::Deployment;
use super::serve::Provisioner;
use super::sources::memory::SourceMemory;
use super::sources::protection::SourceKey;
use super::topology::TopologyWarnings;
use super::triggers::{Queues, Triggers};
use super::{NAME, names};

/// One worker: to remove a finalizer from a source is rare and quick.
const SOURCE_WORKERS: usize = 4;

impl Provisioner {
    pub(super) fn queues(&self, role: &RoleContext) -> Queues {
        let (section, backoff) = (&self.section, self.backoff());
        let lanes = [("provision", section.workers)];
        let span = |key: &ClaimKey| info_span!(parent: None, "claim", role = NAME, persistent_volume_claim = %key);
        let claims = queues::make(role, names::QUEUE_CLAIMS, &lanes, backoff, span);
        let lanes = [("delete", section.delete_workers())];
        let span = |key: &String| info_span!(parent: None, "volume", role = NAME, persistent_volume = %key);
        let volumes = queues::make(role, names::QUEUE_DELETIONS, &lanes, backoff, span);
        let lanes = [("release", SOURCE_WORKERS)];
        let span = |key: &SourceKey| info_span!(parent: None, "source", role = NAME, source = %key);
        Queues { claims, volumes, sources: queues::make(role, names::QUEUE_SOURCES, &lanes, backoff, span) }
    }

    /// The contexts of all rooms, beside the queues.
    pub(super) fn triggers(
        &self,
        role: &RoleContext,
        term: &Term,
        deployment: Deployment,
        capacity: CapacityInvalidation,
        queues: Queues,
        journal: Option<Journal<Entry>>,
    ) -> Triggers {
        let (section, driver) = (&self.section, &role.driver);
        let capabilities = &driver.capabilities;
        let rules = Rules {
            driver: driver.name.clone(),
            durable: section.durable_intent,
            per_node: deployment.local().is_some(),
        };
        let asking = ProvisionRules {
            driver: driver.name.clone(),
            names: NameRule {
                prefix: section.volume_name_prefix.clone(),
                uuid_length: section.volume_name_uuid_length,
            },
            multi_writer: capabilities.single_node_multi_writer(),
            topology: section.topology && capabilities.volume_accessibility_constraints(),
            default_fs_type: section.default_fs_type.clone(),
            extra_create_metadata: section.extra_create_metadata,
            publish_readonly: section.publish_readonly,
            attributes_classes: section.attributes_classes,
        };
        let attaches = capabilities.publish_unpublish();
        let lacks = if capabilities.controller_service() {
            (!capabilities.has(ControllerRpc::CreateDeleteVolume)).then_some("CREATE_DELETE_VOLUME")
        } else {
            Some("CONTROLLER_SERVICE")
        };
        let deletion = deletion::Rules {
            driver: driver.name.clone(),
            finalizer: names::FINALIZER_PROVISIONER,
            attaches,
            lacks,
            honors_policy: section.honor_reclaim_policy,
            without_secret: section.delete_without_secret,
            has_events: section.events != EventsMode::None,
        };
        let journal = RequestJournal { entries: journal, names: asking.names.clone() };
        let marks = VolumeMarks {
            identity: identity(role, deployment.node()),
            attacher_finalizer: (self.beside_attacher && attaches).then(|| csi_attacher::finalizer(&driver.name)),
        };
        let shared = Arc::new(Context {
            scope: Arc::new(TermScope::with_timeout(role, term, section.timeout).with_events(section.events)),
            section: Arc::new(section.clone()),
            stores: Stores::of(&self.caches),
            caches: self.caches.clone(),
            deployment,
            capacity,
            sources: SourceMemory::new(role.clock, queues.sources.clone()),
        });
        let deletion = DeletionContext {
            shared: Arc::clone(&shared),
            rules: deletion.into(),
            journal: journal.clone(),
            memory: Memory::default(),
        };
        let claims = ClaimsContext {
            shared: Arc::clone(&shared),
            rules: rules.into(),
            asking: asking.into(),
            marks,
            topology: TopologyWarnings::default(),
            histories: Histories::default(),
            journal,
            memory: queues.memory_of_claims(),
        };
        Triggers { queues, shared, claims: claims.into(), deletion: deletion.into() }
    }
}

/// The identity that is written into the attributes of each volume: `<milliseconds>-<number>-<driver>`, and `-<node>`
/// with one daemon per node, as the Go sidecar writes it.
fn identity(role: &RoleContext, node: Option<&str>) -> String {
    let number = (role.rng.fraction() * 10_000.0).floor();
    let identity = format!("{}-{number}-{}", role.clock.wall().as_millisecond(), role.driver.name);
    node.map_or_else(|| identity.clone(), |node| format!("{identity}-{node}"))
}
