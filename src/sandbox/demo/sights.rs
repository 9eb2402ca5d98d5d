//! The observations of the demo: each one reads the API, and the driver if possible.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, VolumeAttachment};
use kube::ResourceExt as _;

use super::{Api, Attached, Backend, DAEMON, Demo, NotObserved, Seen, StoryError, Volume, objects};
use crate::process::watch;

/// The namespace of the daemon's own objects.
const NAMESPACE: &str = "kube-system";

impl Demo<'_> {
    pub(super) async fn see_leaders(&mut self) -> Result<(), StoryError> {
        for (index, lease) in self.leases().into_iter().enumerate() {
            let api = self.api.clone();
            let leader = self
                .observe(&format!("lease {lease} is taken"), async || match api.get::<Lease>(NAMESPACE, &lease) {
                    Ok(held) => holder(&held).map_or_else(|| Seen::NotYet("it has no holder".into()), Seen::Yes),
                    Err(_) => Seen::NotYet(format!("there is none in {NAMESPACE}")),
                })
                .await?;
            if index == 0 {
                self.narrator.step(format_args!("driver {} discovered", self.backend.name()));
            }
            self.narrator.step(format_args!("lease {lease} won by {leader}"));
        }
        Ok(())
    }

    /// The daemon holds the Lease no more: nobody does, or a daemon that a user has started beside it.
    pub(super) async fn see_released(&mut self, lease: &str) -> Result<(), NotObserved> {
        let api = self.api.clone();
        let is_own = |holder: &String| holder.strip_prefix(DAEMON).is_some_and(|rest| rest.starts_with('_'));
        self.observe(&format!("lease {lease} is released"), async || match api.get::<Lease>(NAMESPACE, lease) {
            Ok(held) => match holder(&held).filter(is_own) {
                Some(holder) => Seen::NotYet(format!("held by {holder}")),
                None => Seen::Yes(()),
            },
            Err(error) => Seen::NotYet(error.to_string()),
        })
        .await
    }

    /// Waits until the capacity of each place is published for the scheduler.
    pub(super) async fn see_room(&mut self) -> Result<(), StoryError> {
        const WHAT: &str = "the capacity for the scheduler is published";
        if !self.backend.tells_room() {
            self.narrator.skip(WHAT, "the driver does not report its topology or its capacity");
            return Ok(());
        }
        let mut places: Vec<_> = self.backend.places().into_iter().map(|place| place.segments).collect();
        places.sort();
        places.dedup();
        let (api, wanted) = (self.api.clone(), places.len());
        let room = self
            .observe(WHAT, async || {
                let told: Vec<CSIStorageCapacity> = api.list(NAMESPACE).unwrap_or_default();
                let mut told: Vec<String> = told
                    .into_iter()
                    .filter(|told| told.storage_class_name == objects::ON_FIRST_USE)
                    .filter_map(|told| {
                        let labels = told.node_topology?.match_labels?;
                        let place: Vec<&str> = labels.values().map(String::as_str).collect();
                        Some(format!("{} in {}", told.capacity?.0, place.join("/")))
                    })
                    .collect();
                if told.len() < wanted {
                    return Seen::NotYet(format!("{} of {wanted} places", told.len()));
                }
                told.sort_by(|a, b| a.rsplit(' ').cmp(b.rsplit(' ')));
                Seen::Yes(told.join(", "))
            })
            .await?;
        self.narrator.step(format_args!("{WHAT}: {room}"));
        Ok(())
    }

    /// Waits until a claim has its volume, and the volume its claim.
    pub(super) async fn see_bound(&mut self, claim: &str) -> Result<Volume, NotObserved> {
        let api = self.api.clone();
        self.observe(&format!("claim {claim} is bound"), async || {
            let found = match api.get::<PersistentVolumeClaim>("default", claim) {
                Ok(found) => found,
                Err(error) => return Seen::NotYet(error.to_string()),
            };
            let phase = found.status.and_then(|status| status.phase).unwrap_or_default();
            let name = found.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
            let volume = api.get::<PersistentVolume>("", &name).ok();
            let is_bound = |volume: &PersistentVolume| {
                volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
            };
            let handle = volume.filter(is_bound).and_then(|volume| Some(volume.spec?.csi?.volume_handle));
            match handle {
                Some(handle) if phase == "Bound" => Seen::Yes(Volume { claim: claim.to_owned(), name, handle }),
                _ => Seen::NotYet(format!("its phase is {phase:?}")),
            }
        })
        .await
    }

    /// Waits until the status of a claim is as wanted.
    async fn observe_status(
        &mut self,
        claim: &str,
        what: &str,
        look: impl Fn(PersistentVolumeClaimStatus) -> Seen<()>,
    ) -> Result<(), NotObserved> {
        let api = self.api.clone();
        self.observe(what, async || match api.get::<PersistentVolumeClaim>("default", claim) {
            Ok(found) => look(found.status.unwrap_or_default()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
        .await
    }

    /// Waits until a claim has a size, and no step of the expansion is left.
    pub(super) async fn see_size(&mut self, claim: &str, size: &str) -> Result<(), NotObserved> {
        self.observe_status(claim, &format!("claim {claim} has {size}"), |status| {
            let has = status.capacity.and_then(|capacity| capacity.get("storage").map(|has| has.0.clone()));
            match (has, status.allocated_resource_statuses) {
                (Some(has), None) if has == size => Seen::Yes(()),
                (has, state) => Seen::NotYet(format!("it has {}, {:?}", has.unwrap_or_default(), state)),
            }
        })
        .await
    }

    /// Waits until a claim's volume has the attributes of a class.
    pub(super) async fn see_attributes(&mut self, claim: &str, class: &str) -> Result<(), NotObserved> {
        self.observe_status(claim, &format!("claim {claim} has the class {class}"), |status| {
            match (status.current_volume_attributes_class_name, status.modify_volume_status) {
                (Some(has), None) if has == class => Seen::Yes(()),
                (_, Some(modify)) => Seen::NotYet(modify.status),
                (has, None) => Seen::NotYet(format!("its class is {has:?}")),
            }
        })
        .await
    }

    /// Waits until a claim says this of the health of its volume: the status and the reason of each fault.
    pub(super) async fn see_health(&mut self, claim: &str, wrong: &[(&str, &str)]) -> Result<(), NotObserved> {
        let what = if wrong.is_empty() { "healthy" } else { "not healthy" };
        self.observe_status(claim, &format!("claim {claim} has a volume that is {what}"), |status| {
            let told = status.health_status.and_then(|health| health.health_conditions).unwrap_or_default();
            if told.iter().map(|it| (it.status.as_str(), it.reason.as_str())).eq(wrong.iter().copied()) {
                return Seen::Yes(());
            }
            Seen::NotYet(format!("{} faults are told", told.len()))
        })
        .await
    }

    /// Waits until a pod has a node.
    pub(super) async fn see_scheduled(&mut self, pod: &str) -> Result<String, NotObserved> {
        let api = self.api.clone();
        self.observe(&format!("pod {pod} has a node"), async || {
            let found = api.get::<Pod>("default", pod).ok().and_then(|pod| pod.spec?.node_name);
            found.map_or_else(|| Seen::NotYet("the scheduler has not chosen".into()), Seen::Yes)
        })
        .await
    }

    pub(super) async fn see_attached(&mut self, attached: &Attached) -> Result<(), NotObserved> {
        let (claim, node) = (&attached.volume.claim, &attached.node);
        let (api, backend, attachment) = (self.api.clone(), self.backend, attached.attachment(&self.backend.name()));
        self.observe(&format!("{claim} is attached to {node}"), async || {
            let status = match api.get::<VolumeAttachment>("", &attachment) {
                Ok(found) => found.status.unwrap_or_default(),
                Err(error) => return Seen::NotYet(error.to_string()),
            };
            if !status.attached || status.attach_error.is_some() {
                let error = status.attach_error.and_then(|error| error.message);
                return Seen::NotYet(error.unwrap_or_else(|| "not attached yet".into()));
            }
            match backend.published(&attached.volume.handle).await {
                Some(nodes) if !nodes.contains(&attached.node_id) => Seen::NotYet("the driver does not say so".into()),
                _ => Seen::Yes(()),
            }
        })
        .await?;
        self.narrator.step(format_args!("{claim} attached to {node}"));
        Ok(())
    }

    /// Waits until the driver has the volume on its node again.
    pub(super) async fn see_published(&mut self, attached: &Attached) -> Result<(), NotObserved> {
        let backend = self.backend;
        self.observe(&format!("{} is published again", attached.volume.claim), async || {
            match backend.published(&attached.volume.handle).await {
                Some(nodes) if nodes.contains(&attached.node_id) => Seen::Yes(()),
                _ => Seen::NotYet("the driver says that it is detached".into()),
            }
        })
        .await
    }

    pub(super) async fn see_attach_error(&mut self, attached: &Attached) -> Result<String, NotObserved> {
        let (api, attachment) = (self.api.clone(), attached.attachment(&self.backend.name()));
        self.observe(&format!("the failing attach of {} shows its error", attached.volume.claim), async || {
            let found = api.get::<VolumeAttachment>("", &attachment);
            match found.ok().and_then(|found| found.status).and_then(|status| status.attach_error) {
                Some(error) => Seen::Yes(error.message.unwrap_or_default()),
                None => Seen::NotYet("no error in its status yet".into()),
            }
        })
        .await
    }

    /// Waits for an event of this reason on the claim, where its user looks.
    pub(super) async fn see_event(&mut self, claim: &str, reason: &str) -> Result<(), StoryError> {
        let api = self.api.clone();
        let note = self
            .observe(&format!("event {reason} on claim {claim}"), async || {
                let events: Vec<Event> = match api.list("default") {
                    Ok(events) => events,
                    Err(error) => return Seen::NotYet(error.to_string()),
                };
                let found = events.into_iter().find(|event| {
                    event.reason.as_deref() == Some(reason) && event.involved_object.name.as_deref() == Some(claim)
                });
                found.map_or_else(
                    || Seen::NotYet("no such event yet".into()),
                    |event| Seen::Yes(event.message.unwrap_or_default()),
                )
            })
            .await?;
        self.narrator.step(format_args!("event {reason} on claim {claim}: {note}"));
        Ok(())
    }

    pub(super) async fn see_detached(&mut self, attached: &Attached) -> Result<(), NotObserved> {
        let (api, backend, attachment) = (self.api.clone(), self.backend, attached.attachment(&self.backend.name()));
        self.observe(&format!("{} is detached", attached.volume.claim), async || {
            if api.get::<VolumeAttachment>("", &attachment).is_ok() {
                return Seen::NotYet("its attachment is still there".into());
            }
            match backend.published(&attached.volume.handle).await {
                Some(nodes) if !nodes.is_empty() => Seen::NotYet(format!("published to {}", nodes.join(", "))),
                _ => Seen::Yes(()),
            }
        })
        .await
    }

    /// Waits until neither the API nor the driver has the volume any more.
    pub(super) async fn see_deleted(&mut self, volume: &Volume) -> Result<(), NotObserved> {
        let (api, backend) = (self.api.clone(), self.backend);
        self.observe(&format!("the volume of {} is deleted", volume.claim), async || {
            if let Ok(kept) = api.get::<PersistentVolume>("", &volume.name) {
                return Seen::NotYet(format!("kept by {}", kept.finalizers().join(", ")));
            }
            match backend.has(&volume.handle).await {
                Some(true) => Seen::NotYet("the driver still has it".into()),
                _ => Seen::Yes(()),
            }
        })
        .await
    }

    pub(super) async fn observe<T>(
        &mut self,
        what: &str,
        look: impl AsyncFnMut() -> Seen<T>,
    ) -> Result<T, NotObserved> {
        let versions = self.api.versions();
        let driver = match self.backend {
            Backend::Demo(driver) => Some(driver.changes()),
            Backend::Own(_) => None,
        };
        let changed = || {
            // Subscribe before the look: a change during the look then causes another one.
            let (mut versions, mut driver) = (versions.clone(), driver.clone());
            versions.mark_unchanged();
            driver.iter_mut().for_each(watch::Receiver::mark_unchanged);
            async move {
                tokio::select! {
                    biased;
                    _ = versions.changed() => {}
                    () = async {
                        match &mut driver {
                            Some(driver) => { let _ = driver.changed().await; }
                            // A driver that reports no changes has to be asked again.
                            None => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
                        }
                    } => {}
                }
            }
        };
        let observed = self.narrator.observe(what, changed, look).await;
        observed.map_err(|error| error.in_world(world(self.api)))
    }
}

/// The state of the cluster in one line, for the message of a step that was not observed.
pub(super) fn world(api: &Api) -> String {
    let mut told = Vec::new();
    for claim in api.list::<PersistentVolumeClaim>("default").unwrap_or_default() {
        let phase = claim.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        told.push(format!("claim {} is {phase}", claim.name_any()));
    }
    for volume in api.list::<PersistentVolume>("").unwrap_or_default() {
        let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        told.push(format!("volume {} is {phase}", volume.name_any()));
    }
    for pod in api.list::<Pod>("default").unwrap_or_default() {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let place = node.map_or_else(|| "has no node".to_owned(), |node| format!("is on {node}"));
        told.push(format!("pod {} {place}", pod.name_any()));
    }
    for attachment in api.list::<VolumeAttachment>("").unwrap_or_default() {
        let volume = attachment.spec.source.persistent_volume_name.unwrap_or_default();
        let status = attachment.status.unwrap_or_default();
        let error = status.attach_error.or(status.detach_error).and_then(|error| error.message);
        let state = match error {
            Some(error) => format!("fails: {error}"),
            None if status.attached => "is attached".to_owned(),
            None => "is not attached".to_owned(),
        };
        told.push(format!("{volume} on {} {state}", attachment.spec.node_name));
    }
    let events = api.list::<Event>("default").unwrap_or_default();
    let is_warning = |event: &Event| {
        event.type_.as_deref() == Some("Warning")
            && event.involved_object.kind.as_deref() == Some("PersistentVolumeClaim")
    };
    for event in events.into_iter().filter(is_warning) {
        let (reason, claim) = (event.reason.unwrap_or_default(), event.involved_object.name.unwrap_or_default());
        told.push(format!("event {reason} on claim {claim}: {}", event.message.unwrap_or_default()));
    }
    if told.is_empty() {
        return "the cluster has no claim, volume, pod or attachment".to_owned();
    }
    format!("in the cluster: {}", told.join("; "))
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
}
