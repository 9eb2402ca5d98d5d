//! `PersistentVolumeClaims`. Pure.
//!
//! Ours are those that name our driver as their provisioner, or as what took their in-tree provisioner over. Of another's claim stays what a clone of it must know: size, mode, volume, phase.
//! Of any claim with a volume stays what a resizer and a health monitor read, if they are hosted; of any claim its controller, if an
//! attach/detach controller is. Of ours with a volume stays the selected node, if each node has a provisioner.
//! Annotations are all kept while a volume is to be made for the claim: a class may ask for any of them.

use serde::Deserialize;

use super::health::ClaimHealth;
use super::resize::{ClaimResize, WireClaimStatus, WireSize};
use super::{
    BY_ATTRIBUTES_CLASS, BY_CLASS, BY_SELECTED_NODE, BY_SOURCE, Cached, Fields, IndexName, received, trim_meta_but,
    trim_unread, unless_empty,
};
use crate::cluster::meta::Meta;
use crate::cluster::names;
use crate::cluster::packing::{Malformed, Pack, Packed, Reader, Writer};
use smol_str::SmolStr;

received! {
    /// The wish to have a volume.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct PersistentVolumeClaim {
        /// Name, uid, version, finalizers, deletion; the annotations as the file's head says. With [`Fields::ATTACH`] also the
        /// owner that controls it.
        pub metadata: Meta,
        /// What is wished.
        pub spec: ClaimSpec = default,
        /// How far it is.
        pub status: ClaimStatus = default,
    }
}

/// What volume is wished.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "WireSpec")]
pub struct ClaimSpec {
    /// The class by its field; [`PersistentVolumeClaim::class_name`] also looks at the annotation.
    pub storage_class_name: Option<SmolStr>,
    /// The PersistentVolume, once there is one.
    pub volume_name: Option<String>,
    /// Access modes as Kubernetes spells them.
    pub access_modes: Box<[SmolStr]>,
    /// `Filesystem`, `Block`, or unset for the former.
    pub volume_mode: Option<SmolStr>,
    /// The size that is asked for, a quantity.
    pub storage: Option<SmolStr>,
    /// Whether volumes are to be selected by their labels, which no provisioner can do.
    pub has_selector: bool,
    /// What the volume is to be made from.
    pub data_source: Option<Box<DataSource>>,
    /// The same, by the field that can name any kind and another namespace.
    pub data_source_ref: Option<Box<DataSource>>,
    /// The class of the volume's changeable attributes.
    pub volume_attributes_class_name: Option<SmolStr>,
}

received! {
    /// What a volume is to be made from.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct DataSource {
        /// The kind's API group; unset for the core group.
        #[serde(default, deserialize_with = "unless_empty")]
        pub api_group: Option<String>,
        /// The kind.
        pub kind: String = default,
        /// The object's name.
        pub name: String = default,
        /// Its namespace; unset for the claim's.
        #[serde(default, deserialize_with = "unless_empty")]
        pub namespace: Option<String>,
    }
}

/// How far a claim is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "WireClaimStatus")]
pub struct ClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    pub phase: Option<SmolStr>,
    /// Sizes and attributes; with [`Fields::RESIZE`] alone, and only of a claim that has a volume.
    pub resize: Option<Box<ClaimResize>>,
    /// What was told of the volume's health, if anything; with [`Fields::HEALTH`] alone, and only of a claim that has a volume.
    pub health: Option<Box<ClaimHealth>>,
}

impl From<WireClaimStatus> for ClaimStatus {
    fn from(mut wire: WireClaimStatus) -> Self {
        Self { phase: wire.phase.take(), health: wire.health_status.take(), resize: Some(Box::new(wire.resize())) }
    }
}

received! {
    /// The specification as it is sent.
    struct WireSpec {
        storage_class_name: Option<SmolStr>,
        #[serde(default, deserialize_with = "unless_empty")]
        volume_name: Option<String>,
        access_modes: Box<[SmolStr]> = default,
        volume_mode: Option<SmolStr>,
        resources: WireResources = default,
        selector: Option<serde::de::IgnoredAny>,
        data_source: Option<Box<DataSource>>,
        data_source_ref: Option<Box<DataSource>>,
        #[serde(default, deserialize_with = "unless_empty")]
        volume_attributes_class_name: Option<SmolStr>,
    }

    #[derive(Default)]
    struct WireResources {
        requests: WireSize = default,
    }
}

impl From<WireSpec> for ClaimSpec {
    fn from(wire: WireSpec) -> Self {
        Self {
            storage_class_name: wire.storage_class_name,
            volume_name: wire.volume_name,
            access_modes: wire.access_modes,
            volume_mode: wire.volume_mode,
            storage: wire.resources.requests.storage,
            has_selector: wire.selector.is_some(),
            data_source: wire.data_source,
            data_source_ref: wire.data_source_ref,
            volume_attributes_class_name: wire.volume_attributes_class_name,
        }
    }
}

/// What [`BY_SOURCE`] finds claims under.
pub fn source_key(namespace: &str, kind: &str, name: &str) -> String {
    format!("{namespace}/{kind}/{name}")
}

impl PersistentVolumeClaim {
    /// The name of the claim's class: the old annotation wins over the field, as everywhere in Kubernetes.
    pub fn class_name(&self) -> Option<&str> {
        self.annotation(names::ANNOTATION_BETA_STORAGE_CLASS).or(self.spec.storage_class_name.as_deref())
    }

    /// Who the claim's controller says must make the volume.
    pub fn provisioner(&self) -> Option<&str> {
        let old = || self.annotation(names::ANNOTATION_BETA_STORAGE_PROVISIONER);
        self.annotation(names::ANNOTATION_STORAGE_PROVISIONER).or_else(old)
    }

    /// The node that the scheduler chose.
    pub fn selected_node(&self) -> Option<&str> {
        let chosen = |key| self.annotation(key).filter(|node| !node.is_empty());
        chosen(names::ANNOTATION_SELECTED_NODE).or_else(|| chosen(names::ANNOTATION_ALPHA_SELECTED_NODE))
    }

    /// The CSI driver that has taken over the claim's in-tree provisioner.
    pub fn migrated_to(&self) -> Option<&str> {
        self.annotation(names::ANNOTATION_MIGRATED_TO)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotation(key)
    }

    /// Drops what no role reads but for the owners.
    fn trim_fields(&mut self, driver: &str, fields: Fields) {
        if !fields.contains(Fields::HEALTH) || self.spec.volume_name.is_none() {
            self.status.health = None;
        }
        let is_resized = fields.contains(Fields::RESIZE) && self.spec.volume_name.is_some();
        if !is_resized {
            self.status.resize = None;
        } else if self.status.resize.is_none() {
            self.status.resize = Some(Box::default());
        }
        let ours = self.provisioner() == Some(driver) || self.migrated_to() == Some(driver);
        if ours && self.spec.volume_name.is_none() {
            trim_unread(&mut self.metadata);
            return;
        }
        // Who makes the volume is said twice; the old annotation is read only where the new one is absent.
        let is_said = self.metadata.annotation(names::ANNOTATION_STORAGE_PROVISIONER).is_some();
        let unread = if is_said { names::ANNOTATION_BETA_STORAGE_PROVISIONER } else { "" };
        let more = if is_resized { names::RESIZED_CLAIM_ANNOTATIONS } else { &[] };
        let node = if ours && fields.contains(Fields::SELECTED_NODE) { names::SELECTED_NODE_ANNOTATIONS } else { &[] };
        let wanted = [names::CLAIM_ANNOTATIONS, more, node];
        trim_meta_but(&mut self.metadata, |key| key != unread && wanted.iter().any(|wanted| wanted.contains(&key)));
        self.spec.data_source = None;
        self.spec.data_source_ref = None;
        if !ours {
            self.metadata.creation_timestamp = None;
            self.spec.access_modes = Box::default();
            if !is_resized {
                self.spec.volume_attributes_class_name = None;
            }
        }
    }
}

impl Cached for PersistentVolumeClaim {
    const KIND: &'static str = "PersistentVolumeClaim";

    fn trim(&mut self, driver: &str, fields: Fields) {
        // A pod's ephemeral volume is made for a claim that the pod controls (attach-detach spec 3).
        let owners = self.metadata.owner_references.take().filter(|_| fields.contains(Fields::ATTACH));
        self.trim_fields(driver, fields);
        let controller = owners.into_iter().flatten().find(|owner| owner.controller == Some(true));
        self.metadata.owner_references = controller.map(|owner| Box::from([owner]));
    }

    /// A claim that another driver has made a volume for, unless it is being cloned: our finalizer is on it then. Its volume may be ours
    /// all the same, if it was bound by hand, so a walk over claims to resize leaves none out.
    fn packed(&self, driver: &str) -> Option<Packed> {
        let is_made = self.spec.volume_name.is_some() && self.provisioner().is_some_and(|by| by != driver);
        let is_ours = self.migrated_to() == Some(driver) || self.metadata.has_finalizer(names::FINALIZER_CLONING);
        if is_made && !is_ours { Packed::of(self) } else { None }
    }

    fn opened(packed: &Packed) -> Option<Self> {
        packed.open()
    }

    fn whereabouts(&self) -> Option<String> {
        let phase = self.status.phase.as_deref()?;
        Some(match &self.spec.volume_name {
            Some(volume) => format!("{phase}, {volume}"),
            None => phase.to_owned(),
        })
    }

    fn index(&self, add: &mut dyn FnMut(IndexName, &str)) {
        let own = self.metadata.namespace.as_deref().unwrap_or_default();
        let mut keys: Vec<String> = [&self.spec.data_source, &self.spec.data_source_ref]
            .into_iter()
            .flatten()
            .map(|source| source_key(source.namespace.as_deref().unwrap_or(own), &source.kind, &source.name))
            .collect();
        // Servers mirror one field into the other.
        keys.dedup();
        for key in keys {
            add(BY_SOURCE, &key);
        }
        if let Some(resize) = &self.status.resize {
            let (wished, target) = (
                self.spec.volume_attributes_class_name.as_ref(),
                resize.modify.as_ref().and_then(|modify| modify.target.as_ref()),
            );
            for class in wished.into_iter().chain(target.filter(|target| Some(*target) != wished)) {
                add(BY_ATTRIBUTES_CLASS, class);
            }
        }
        if self.spec.volume_name.is_none() {
            if let Some(class) = self.class_name() {
                add(BY_CLASS, class);
            }
            if let Some(node) = self.selected_node() {
                add(BY_SELECTED_NODE, node);
            }
        }
    }
}

impl Pack for PersistentVolumeClaim {
    fn pack(&self, to: &mut Writer) {
        self.metadata.pack(to);
        let ClaimSpec { storage_class_name, volume_name, volume_mode, storage, .. } = &self.spec;
        for text in [storage_class_name, volume_mode, storage, &self.spec.volume_attributes_class_name] {
            to.optional(text.as_deref());
        }
        to.optional(volume_name.as_deref());
        to.optional(self.status.phase.as_deref());
        let sizes = self.status.resize.as_deref().map(|it| [&it.capacity, &it.allocated, &it.current_attributes_class]);
        // What is absent and what is empty are told apart by the check of all that is packed.
        let texts = sizes.map(|sizes| sizes.map(|size| size.as_deref().unwrap_or_default()).into_iter());
        to.optionals(texts);
    }

    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let metadata = Meta::unpack(from)?;
        let mut text = || from.optional().map(|text| text.map(SmolStr::from));
        let spec = ClaimSpec {
            storage_class_name: text()?,
            volume_mode: text()?,
            storage: text()?,
            volume_attributes_class_name: text()?,
            volume_name: from.optional()?,
            ..ClaimSpec::default()
        };
        let phase = from.optional()?.map(SmolStr::from);
        let resize = from.optionals()?.map(|sizes| {
            let mut sizes = sizes.into_iter().map(|size| Some(SmolStr::from(size)).filter(|size| !size.is_empty()));
            let mut size = || sizes.next().flatten();
            let (capacity, allocated, current_attributes_class) = (size(), size(), size());
            Box::new(ClaimResize { capacity, allocated, current_attributes_class, ..ClaimResize::default() })
        });
        Ok(Self { metadata, spec, status: ClaimStatus { phase, resize, health: None } })
    }
}
