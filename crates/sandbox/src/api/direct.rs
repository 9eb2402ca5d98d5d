//! The API without HTTP, for tests, actors and the demo: as an administrator, at once, without faults and without the
//! audit log.

use std::sync::Arc;

use kube::Resource as Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Api;
use super::pure::patch::PatchKind;
use super::pure::rejection::Rejection;
use super::pure::resources::{self, Resource};
use super::pure::selector::{Fields, Labels};
use super::pure::strict::{Directive, Dropped};
use super::store::{At, ListQuery, Preconditions, Target, WriteOptions, meta};

/// The user of direct writes.
const ACTOR: &str = "system:sandbox";

/// A direct request that failed.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The sandbox has no such kind.
    #[error("the sandbox has no kind {0}")]
    UnknownKind(String),
    /// The API refuses, as it would over HTTP.
    #[error("{} ({})", .0.message, .0.code)]
    Refused(Rejection),
    /// The object does not have the type's shape.
    #[error("cannot convert the object")]
    Shape(#[source] serde_json::Error),
}

impl From<Rejection> for DirectError {
    fn from(rejection: Rejection) -> Self {
        Self::Refused(rejection)
    }
}

impl DirectError {
    /// The status code that HTTP would show, if it is the API that refuses.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(rejection) => Some(rejection.code),
            Self::UnknownKind(_) | Self::Shape(_) => None,
        }
    }
}

/// A patch and its type.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchBody {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// By merge keys.
    Strategic(Value),
    /// Server-side apply, forced, by this manager.
    Apply(String, Value),
}

impl PatchBody {
    fn parts(self) -> (PatchKind, Value) {
        match self {
            Self::Json(body) => (PatchKind::Json, body),
            Self::Merge(body) => (PatchKind::Merge, body),
            Self::Strategic(body) => (PatchKind::Strategic, body),
            Self::Apply(manager, body) => (PatchKind::Apply { manager, force: true }, body),
        }
    }
}

fn resource_of<K: Kind<DynamicType = ()>>() -> Result<&'static Resource, DirectError> {
    let (group, version, plural) = (K::group(&()), K::version(&()), K::plural(&()));
    resources::find(&group, &version, &plural).ok_or_else(|| DirectError::UnknownKind(K::kind(&()).into_owned()))
}

fn typed<K: DeserializeOwned>(object: &Value) -> Result<K, DirectError> {
    K::deserialize(object).map_err(DirectError::Shape)
}

impl Api {
    /// One object; `namespace` is empty for the cluster scope, here and below.
    pub fn get<K>(&self, namespace: &str, name: &str) -> Result<K, DirectError>
    where
        K: Kind<DynamicType = ()> + DeserializeOwned,
    {
        let resource = resource_of::<K>()?;
        let object = self.state().get(resource, namespace, name);
        typed(&*object.ok_or_else(|| Rejection::not_found(resource, name))?)
    }

    /// All objects of a kind; an empty `namespace` means all namespaces.
    pub fn list<K>(&self, namespace: &str) -> Result<Vec<K>, DirectError>
    where
        K: Kind<DynamicType = ()> + DeserializeOwned,
    {
        let resource = resource_of::<K>()?;
        self.objects(resource, namespace)?.iter().map(|object| typed(object)).collect()
    }

    /// Stores a new object in the namespace that it names.
    pub fn create<K>(&self, object: &K) -> Result<K, DirectError>
    where
        K: Kind<DynamicType = ()> + DeserializeOwned + Serialize,
    {
        resource_of::<K>()?;
        typed(&*self.create_value(typed_value(object)?)?)
    }

    /// Patches an object.
    pub fn patch<K>(&self, namespace: &str, name: &str, patch: PatchBody) -> Result<K, DirectError>
    where
        K: Kind<DynamicType = ()> + DeserializeOwned,
    {
        self.patch_at::<K>(namespace, name, patch, false)
    }

    /// Patches an object's status.
    pub fn patch_status<K>(&self, namespace: &str, name: &str, patch: PatchBody) -> Result<K, DirectError>
    where
        K: Kind<DynamicType = ()> + DeserializeOwned,
    {
        self.patch_at::<K>(namespace, name, patch, true)
    }

    fn patch_at<K>(&self, namespace: &str, name: &str, patch: PatchBody, status: bool) -> Result<K, DirectError>
    where
        K: Kind<DynamicType = ()> + DeserializeOwned,
    {
        typed(&*self.patch_object(resource_of::<K>()?, namespace, name, patch, status)?)
    }

    /// Deletes an object; says whether it is gone, as opposed to waiting for its finalizers.
    pub fn delete<K>(&self, namespace: &str, name: &str) -> Result<bool, DirectError>
    where
        K: Kind<DynamicType = ()>,
    {
        self.delete_object(resource_of::<K>()?, namespace, name)
    }

    /// Stores a new object of the kind and in the namespace that it names itself; `default` if it names none.
    pub fn create_value(&self, object: Value) -> Result<Arc<Value>, DirectError> {
        let text = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let resource = resources::of_kind(version, kind)
            .filter(|resource| self.serves(resource))
            .ok_or_else(|| DirectError::UnknownKind(format!("{kind} in {version}")))?;
        let namespace = match meta::text(&object, "namespace") {
            _ if !resource.namespaced => String::new(),
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        };
        let target = Target { resource, namespace: &namespace, name: "" };
        Ok(self.state().create(target, object, WriteOptions::by(ACTOR))?)
    }

    /// One object as it is stored.
    pub fn object(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.state().get(resource, namespace, name)
    }

    /// Patches an object, or its status, as it is stored.
    pub fn patch_object(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        patch: PatchBody,
        status: bool,
    ) -> Result<Arc<Value>, DirectError> {
        let (kind, body) = patch.parts();
        let body = serde_json::to_vec(&body).map_err(DirectError::Shape)?;
        let options = WriteOptions { status, ..WriteOptions::by(ACTOR) };
        let mut unheard = Dropped::new(Directive::Ignore);
        let (object, _) =
            self.state().patch(Target { resource, namespace, name }, &kind, &body, options, &mut unheard)?;
        Ok(object)
    }

    /// Deletes an object; says whether it is gone.
    pub fn delete_object(&self, resource: &'static Resource, namespace: &str, name: &str) -> Result<bool, DirectError> {
        let target = Target { resource, namespace, name };
        Ok(self.state().delete(target, &Preconditions::default(), WriteOptions::by(ACTOR))?.gone)
    }

    /// The objects of a resource as they are stored; an empty `namespace` means all namespaces.
    pub fn objects(&self, resource: &'static Resource, namespace: &str) -> Result<Vec<Arc<Value>>, DirectError> {
        let (labels, fields) = (Labels::parse("")?, Fields::parse(resource, "")?);
        let query =
            ListQuery { resource, namespace, labels: &labels, fields: &fields, at: At::Latest, after: None, limit: 0 };
        let listed = self.state().list(&query).map_err(|refused| refused.rejection)?;
        Ok(listed.objects)
    }
}

/// An object as JSON, its `apiVersion` and `kind` included where the type knows them.
fn typed_value<K: Kind<DynamicType = ()> + Serialize>(object: &K) -> Result<Value, DirectError> {
    let mut value = serde_json::to_value(object).map_err(DirectError::Shape)?;
    if let Some(map) = value.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| K::api_version(&()).into());
        map.entry("kind").or_insert_with(|| K::kind(&()).into());
    }
    Ok(value)
}
