//! Writes: each reads the object, decides, and commits, all under the store's lock.
//!
//! The order of checks is the real server's, because clients see which one fails first: body and path, namespace, name,
//! uid and resourceVersion preconditions, then the kind's own rules.

use std::sync::Arc;

use serde_json::Value;

use super::{Change, Key, State, defaults, kind, meta, sources};
use crate::api::pure::patch::{self, Managed, PatchKind};
use crate::api::pure::rejection::{Cause, Rejection};
use crate::api::pure::resources::{RESOURCES, Resource};
use crate::api::pure::strict::Dropped;
use crate::api::pure::validate;

/// These can't be deleted.
const FIXED_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// The object that a request is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) resource: &'static Resource,
    /// Empty for the cluster scope.
    pub(crate) namespace: &'a str,
    /// Empty when the object's own name or `generateName` counts.
    pub(crate) name: &'a str,
}

/// The options of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteOptions<'a> {
    /// Everything but the commit.
    pub(crate) dry_run: bool,
    /// Whether the status endpoint is written.
    pub(crate) status: bool,
    /// The writer.
    pub(crate) actor: &'a str,
    /// Under which name the written fields are owned.
    pub(crate) manager: &'a str,
    /// Whether the object comes from server-side apply, which has noted who owns what.
    pub(crate) applied: bool,
}

impl<'a> WriteOptions<'a> {
    /// A plain write by `actor`.
    pub(crate) fn by(actor: &'a str) -> Self {
        Self { dry_run: false, status: false, actor, manager: actor, applied: false }
    }
}

/// The preconditions of a delete.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

/// The result of a delete.
#[derive(Debug)]
pub(crate) struct Deleted {
    pub(crate) object: Arc<Value>,
    /// Whether the object is gone, as opposed to waiting for its finalizers.
    pub(crate) gone: bool,
}

impl State {
    /// Stores a new object.
    pub(crate) fn create(
        &mut self,
        target: Target<'_>,
        mut object: Value,
        options: WriteOptions<'_>,
    ) -> Result<Arc<Value>, Rejection> {
        let resource = target.resource;
        check_type(resource, &mut object)?;
        check_place(target, &object)?;
        if resource.namespaced {
            self.check_namespace(target, meta::text(&object, "name"))?;
        }
        if !meta::text(&object, "resourceVersion").is_empty() {
            // The real server forgot to give this one a reason.
            let message = "resourceVersion should not be set on objects to be created".to_owned();
            return Err(Rejection { code: 500, reason: "", message, details: None, retry_after: None });
        }
        self.name(target, &mut object)?;
        let (uid, now) = (self.uid(), self.timestamp());
        meta::prepare_create(resource, &mut object, target.namespace, &uid, &now);
        defaults::fill(resource, &mut object);
        defaults::fill_status(resource, &mut object, &now);
        if resource.plural == "persistentvolumeclaims" {
            sources::settle(None, &mut object, self.sources_anywhere);
        }
        self.admit(resource, &mut object);
        validate::on_create(resource, &object)?;
        self.track(resource, None, &mut object, options);
        let key = Key::new(target.namespace, meta::text(&object, "name"));
        if self.get(resource, &key.namespace, &key.name).is_some() {
            return Err(Rejection::already_exists(resource, &key.name));
        }
        let charges = self.charge(resource, target.namespace, None, &object, false)?;
        if options.dry_run {
            return Ok(Arc::new(object));
        }
        self.settle(charges);
        Ok(self.commit(resource, key, Change::Put(object), options.actor))
    }

    /// Replaces an object; the answer's second half says whether it was created.
    pub(crate) fn update(
        &mut self,
        target: Target<'_>,
        mut object: Value,
        options: WriteOptions<'_>,
    ) -> Result<(Arc<Value>, bool), Rejection> {
        check_type(target.resource, &mut object)?;
        check_place(target, &object)?;
        let Some(current) = self.get(target.resource, target.namespace, target.name) else {
            if options.status || !meta::creates_on_update(target.resource) {
                return Err(Rejection::not_found(target.resource, target.name));
            }
            meta::set(&mut object, "resourceVersion", None);
            return self.create(target, object, options).map(|object| (object, true));
        };
        let (wanted, found) = (meta::text(&object, "uid"), meta::text(&current, "uid"));
        if !wanted.is_empty() && wanted != found {
            let Target { resource, namespace, name } = target;
            return Err(Rejection::uid_precondition(resource, namespace, name, wanted, found));
        }
        if meta::text(&object, "resourceVersion").is_empty() && meta::updates_unconditionally(target.resource) {
            meta::set(&mut object, "resourceVersion", current.pointer("/metadata/resourceVersion").cloned());
        }
        self.replace(target, &current, object, options).map(|object| (object, false))
    }

    /// Patches an object; the answer's second half says whether it was created, as server-side apply may.
    pub(crate) fn patch(
        &mut self,
        target: Target<'_>,
        kind: &PatchKind,
        body: &[u8],
        options: WriteOptions<'_>,
        dropped: &mut Dropped,
    ) -> Result<(Arc<Value>, bool), Rejection> {
        let options = WriteOptions { applied: matches!(kind, PatchKind::Apply { .. }), ..options };
        let Some(current) = self.get(target.resource, target.namespace, target.name) else {
            if options.status || !options.applied {
                return Err(Rejection::not_found(target.resource, target.name));
            }
            let object = self.patched(target.resource, kind, None, body, options)?;
            let (wanted, name) = (meta::text(&object, "uid"), target.name);
            if !wanted.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {wanted}, and no existing object was found"
                );
                return Err(Rejection::cannot_fulfil(target.resource, name, why));
            }
            return self.create(target, object, options).map(|object| (object, true));
        };
        let mut object = self.patched(target.resource, kind, Some(&current), body, options)?;
        // A client's object and the result of a patch are refused with different codes.
        check_type(target.resource, &mut object)
            .map_err(|refusal| if options.applied { refusal } else { refusal.of_a_patch(&object) })?;
        dropped.in_patch(target.resource, kind, body, &mut object)?;
        check_place(target, &object)?;
        self.replace(target, &current, object, options).map(|object| (object, false))
    }

    /// The object after a patch.
    fn patched(
        &self,
        resource: &Resource,
        kind: &PatchKind,
        current: Option<&Value>,
        body: &[u8],
        options: WriteOptions<'_>,
    ) -> Result<Value, Rejection> {
        let PatchKind::Apply { manager, force } = kind else { return patch::apply(kind, resource, current, body) };
        let time = self.timestamp();
        let subresource = if options.status { "status" } else { "" };
        let managed = Managed { manager, subresource, time: Some(&time) };
        patch::apply_configuration(resource, current, body, managed, *force)
    }

    /// Notes who owns the fields that a write other than apply has changed.
    fn track(&self, resource: &Resource, old: Option<&Value>, new: &mut Value, options: WriteOptions<'_>) {
        if self.managed_fields && !options.applied {
            let time = self.timestamp();
            let subresource = if options.status { "status" } else { "" };
            let managed = Managed { manager: options.manager, subresource, time: Some(&time) };
            patch::track_update(resource, old, new, managed);
        }
    }

    fn replace(
        &mut self,
        target: Target<'_>,
        current: &Arc<Value>,
        mut object: Value,
        options: WriteOptions<'_>,
    ) -> Result<Arc<Value>, Rejection> {
        let Target { resource, name, .. } = target;
        let (wanted, found) = (meta::text(&object, "resourceVersion"), meta::text(current, "resourceVersion"));
        if wanted.is_empty() {
            if !meta::updates_unconditionally(resource) {
                return Err(version_required(resource, name));
            }
            meta::set(&mut object, "resourceVersion", Some(found.into()));
        } else if wanted != found {
            return Err(Rejection::conflict(resource, name));
        }
        meta::prepare_update(resource, current, &mut object, options.status);
        defaults::fill(resource, &mut object);
        if resource.plural == "persistentvolumeclaims" {
            sources::settle(Some(current), &mut object, self.sources_anywhere);
            sources::drop_health(current, &mut object, self.volume_health);
        }
        if options.status {
            defaults::note_phase(resource, current, &mut object, &self.timestamp());
        }
        validate::on_update(resource, current, &object, options.status)?;
        self.admit_change(resource, current, &object)?;
        self.track(resource, Some(current), &mut object, options);
        if object == **current {
            return Ok(Arc::clone(current));
        }
        let charges = self.charge(resource, target.namespace, Some(current), &object, options.status)?;
        // The last finalizer of a deleted object has gone, and the object with it.
        let gone = meta::is_deleting(current) && !meta::has_finalizers(&object) && !self.is_populated(resource, name);
        if options.dry_run {
            return Ok(Arc::new(object));
        }
        self.settle(charges);
        let key = Key::new(target.namespace, name);
        if gone {
            // The writer is shown what it wrote, which was never stored; watchers what was, at the version of its end.
            self.commit(resource, key, Change::Remove(Value::clone(current)), options.actor);
            return Ok(Arc::new(object));
        }
        Ok(self.commit(resource, key, Change::Put(object), options.actor))
    }

    /// Deletes an object, or marks it deleted while it has finalizers.
    pub(crate) fn delete(
        &mut self,
        target: Target<'_>,
        preconditions: &Preconditions,
        options: WriteOptions<'_>,
    ) -> Result<Deleted, Rejection> {
        let Target { resource, namespace, name } = target;
        let current = self.get(resource, namespace, name).ok_or_else(|| Rejection::not_found(resource, name))?;
        if let Some(wanted) = &preconditions.uid
            && let found = meta::text(&current, "uid")
            && wanted != found
        {
            return Err(Rejection::delete_uid_precondition(resource, name, wanted, found));
        }
        if let Some(wanted) = &preconditions.version
            && let found = meta::text(&current, "resourceVersion")
            && wanted != found
        {
            return Err(Rejection::delete_version_precondition(resource, name, wanted, found));
        }
        let is_namespace = is_namespaces(resource);
        if is_namespace && FIXED_NAMESPACES.contains(&name) {
            return Err(Rejection::forbidden_because(resource, name, "this namespace may not be deleted"));
        }
        if !meta::has_finalizers(&current) && !self.is_populated(resource, name) {
            if options.dry_run {
                return Ok(Deleted { object: current, gone: true });
            }
            let last = Value::clone(&current);
            let object = self.commit(resource, Key::new(namespace, name), Change::Remove(last), options.actor);
            return Ok(Deleted { object, gone: true });
        }
        if meta::is_deleting(&current) {
            return Ok(Deleted { object: current, gone: false });
        }
        let mut object = Value::clone(&current);
        meta::set(&mut object, "deletionTimestamp", Some(self.timestamp().into()));
        meta::set(&mut object, "deletionGracePeriodSeconds", (!is_namespace).then(|| 0.into()));
        if let Some(generation) = object.pointer("/metadata/generation").and_then(Value::as_i64) {
            meta::set(&mut object, "generation", Some((generation + 1).into()));
        }
        if is_namespace && let Some(phase) = object.pointer_mut("/status/phase") {
            *phase = "Terminating".into();
        }
        if options.dry_run {
            return Ok(Deleted { object: Arc::new(object), gone: false });
        }
        let object = self.commit(resource, Key::new(namespace, name), Change::Put(object), options.actor);
        if is_namespace {
            self.empty_namespace(name, options);
        }
        Ok(Deleted { object, gone: false })
    }

    /// Deletes what a namespace holds, as the namespace controller would.
    fn empty_namespace(&mut self, namespace: &str, options: WriteOptions<'_>) {
        for resource in RESOURCES.iter().filter(|resource| resource.namespaced) {
            let objects = self.matching(resource, namespace, |_| true);
            for object in objects {
                let target = Target { resource, namespace, name: meta::text(&object, "name") };
                // It was there a moment ago and nothing else runs: there is nothing to refuse.
                let _ = self.delete(target, &Preconditions::default(), options);
            }
        }
    }

    /// Removes a deleted namespace once it is empty.
    pub(super) fn reap_namespace(&mut self, namespace: &str) {
        let Some(resource) = RESOURCES.iter().find(|resource| is_namespaces(resource)) else { return };
        let Some(object) = self.get(resource, "", namespace) else { return };
        if meta::is_deleting(&object) && !meta::has_finalizers(&object) && !self.is_populated(resource, namespace) {
            let last = Value::clone(&object);
            self.commit(resource, Key::new("", namespace), Change::Remove(last), "system:namespace-controller");
        }
    }

    /// Whether this is a namespace that holds objects.
    fn is_populated(&self, resource: &Resource, name: &str) -> bool {
        is_namespaces(resource)
            && RESOURCES
                .iter()
                .filter(|resource| resource.namespaced)
                .filter_map(|resource| self.objects.get(&kind(resource)))
                .any(|objects| objects.range(Key::new(name, "")..).next().is_some_and(|(key, _)| key.namespace == name))
    }

    fn check_namespace(&self, target: Target<'_>, name: &str) -> Result<(), Rejection> {
        let Some(namespaces) = RESOURCES.iter().find(|resource| is_namespaces(resource)) else { return Ok(()) };
        let namespace = target.namespace;
        let Some(object) = self.get(namespaces, "", namespace) else {
            return Err(Rejection::not_found(namespaces, namespace));
        };
        if meta::is_deleting(&object) {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            return Err(Rejection::forbidden_because(target.resource, name, why));
        }
        Ok(())
    }

    /// The present time, as `metadata` has it: in whole seconds.
    pub(crate) fn timestamp(&self) -> String {
        self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

fn is_namespaces(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// A PUT without a version, of a kind that insists on one. The real server puts the resource where the kind should be.
fn version_required(resource: &Resource, name: &str) -> Rejection {
    let cause = Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
    let mut rejection = Rejection::invalid(resource, name, &[cause]);
    rejection.message = rejection.message.replacen(&resource.qualified_kind(), &resource.qualified(), 1);
    if let Some(kind) = rejection.details.as_mut().and_then(|details| details.get_mut("kind")) {
        *kind = resource.plural.into();
    }
    rejection
}

/// The body must be of the path's kind; what it leaves out is filled in.
fn check_type(resource: &Resource, object: &mut Value) -> Result<(), Rejection> {
    let Some(map) = object.as_object_mut() else {
        return Err(Rejection::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error",
            resource.kind
        )));
    };
    let version = resource.api_version();
    for (member, wanted) in [("apiVersion", version.as_str()), ("kind", resource.kind)] {
        let found = map.get(member).and_then(Value::as_str).unwrap_or_default();
        if found.is_empty() {
            map.insert(member.to_owned(), wanted.into());
        } else if found != wanted {
            let (kind, version) = (resource.kind, resource.version);
            return Err(Rejection::bad_request(if member == "kind" {
                format!(
                    "{found} in version \"{version}\" cannot be handled as a {kind}: converting ({version}.{found}) to \
                     (core.{kind}): unknown conversion"
                )
            } else {
                format!(
                    "{kind} in version \"{found}\" cannot be handled as a {kind}: no kind \"{kind}\" is registered for \
                     version \"{found}\" in scheme \"pkg/runtime/scheme.go:111\""
                )
            }));
        }
    }
    validate::decodes(resource, object)
}

/// The body's own namespace and name must be the path's, where it has any.
fn check_place(target: Target<'_>, object: &Value) -> Result<(), Rejection> {
    let namespace = meta::text(object, "namespace");
    if target.resource.namespaced && !namespace.is_empty() && namespace != target.namespace {
        return Err(Rejection::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let name = meta::text(object, "name");
    if !target.name.is_empty() && !name.is_empty() && name != target.name {
        return Err(Rejection::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    Ok(())
}
