//! Discovery: versions, groups, resources.
//!
//! Old clients walk `/api`, `/apis`, `/apis/G` and a resource list per version; newer ones ask `/api` and `/apis` for an
//! *aggregated* answer by a parameterised media type. Both are rendered from the kinds that are
//! served, of the one table in [`super::resources`].

use super::rejection::Rejection;
use super::resources::{Resource, STATUS_VERBS, group_version, groups};
use serde_json::{Value, json};

/// The forms of the aggregated answer that clients ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregated {
    /// `v=v2`, from 1.30.
    V2,
    /// `v=v2beta1`, 1.26 to 1.29.
    V2Beta1,
}

impl Aggregated {
    /// The form that an `Accept` header asks for first, if any; a plain JSON that stands before it wins.
    pub fn accepted(accept: &str) -> Option<Self> {
        accept.split(',').map(str::trim).find_map(|range| {
            let parameters: Vec<&str> = range.split(';').map(str::trim).collect();
            let has = |parameter: &str| parameters.contains(&parameter);
            let plain = parameters.len() == 1 && has("application/json");
            let asked = has("as=APIGroupDiscoveryList") && has("g=apidiscovery.k8s.io") && has("application/json");
            match () {
                () if plain => Some(None),
                () if asked && has("v=v2") => Some(Some(Self::V2)),
                () if asked && has("v=v2beta1") => Some(Some(Self::V2Beta1)),
                () => None,
            }
        })?
    }

    fn version(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V2Beta1 => "v2beta1",
        }
    }

    /// The `Content-Type` of the answer, by which clients tell it from the plain one.
    pub fn content_type(self) -> String {
        format!("application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList", self.version())
    }

    /// The answer for `/api`.
    pub fn core(self, served: &[&'static Resource]) -> Value {
        self.list(&[aggregated_group(served, "", "v1")])
    }

    /// The answer for `/apis`.
    pub fn named(self, served: &[&'static Resource]) -> Value {
        let groups: Vec<Value> =
            groups(served).into_iter().map(|(group, version)| aggregated_group(served, group, version)).collect();
        self.list(&groups)
    }

    fn list(self, items: &[Value]) -> Value {
        json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{}", self.version()),
            "metadata": {},
            "items": items,
        })
    }
}

fn aggregated_group(served: &[&'static Resource], group: &str, version: &str) -> Value {
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    let resources: Vec<Value> = of(served, group, version).map(aggregated_resource).collect();
    json!({
        "metadata": metadata,
        "versions": [{ "version": version, "resources": resources, "freshness": "Current" }],
    })
}

fn of<'a>(
    served: &'a [&'static Resource],
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'static Resource> {
    served.iter().copied().filter(move |it| it.group == group && it.version == version)
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    name_it(&mut value, resource);
    if resource.has_status {
        value["subresources"] = json!([{ "subresource": "status", "responseKind": kind, "verbs": STATUS_VERBS }]);
    }
    value
}

fn name_it(value: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
}

/// `GET /api`.
pub fn api_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

/// `GET /apis`.
pub fn api_group_list(served: &[&'static Resource]) -> Value {
    let groups: Vec<Value> = groups(served).into_iter().map(|(group, version)| group_members(group, version)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `GET /apis/G`.
pub fn api_group(served: &[&'static Resource], group: &str) -> Result<Value, Rejection> {
    let (group, version) =
        groups(served).into_iter().find(|(name, _)| *name == group).ok_or_else(Rejection::path_not_found)?;
    let mut value = group_members(group, version);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Ok(value)
}

fn group_members(group: &str, version: &str) -> Value {
    let version = json!({ "groupVersion": group_version(group, version), "version": version });
    json!({ "name": group, "versions": [version], "preferredVersion": version })
}

/// `GET /api/v1` (group empty) and `GET /apis/G/V`.
pub fn resource_list(served: &[&'static Resource], group: &str, version: &str) -> Result<Value, Rejection> {
    let mut resources = Vec::new();
    for resource in of(served, group, version) {
        let mut value = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs,
        });
        name_it(&mut value, resource);
        resources.push(value);
        if resource.has_status {
            resources.push(json!({
                "name": format!("{}/status", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": STATUS_VERBS,
            }));
        }
    }
    if resources.is_empty() {
        return Err(Rejection::path_not_found());
    }
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version(group, version),
        "resources": resources,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Ok(list)
}

/// `GET /version`: the Kubernetes version whose behaviour is copied.
pub fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": "v1.37.0+sandbox",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

#[cfg(test)]
mod tests {
    use super::super::resources::served;
    use super::*;

    #[test]
    fn the_aggregated_form_is_taken_only_when_asked_for_first() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                       application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        let cases = [
            (kubectl, Some(Aggregated::V2)),
            ("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", Some(Aggregated::V2)),
            ("application/json; g=apidiscovery.k8s.io; v=v2beta1; as=APIGroupDiscoveryList", Some(Aggregated::V2Beta1)),
            ("application/json", None),
            ("application/json, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", None),
            ("*/*", None),
            ("application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", None),
            ("", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(Aggregated::accepted(accept), expected, "{accept}");
        }
    }

    #[test]
    fn both_forms_list_the_same_resources() {
        let all = served(|_| true);
        let plain: Vec<String> = groups(&all)
            .into_iter()
            .chain([("", "v1")])
            .flat_map(|(group, version)| {
                let list = resource_list(&all, group, version).unwrap();
                let names = list["resources"].as_array().unwrap().clone();
                names.into_iter().map(|it| it["name"].as_str().unwrap().to_owned())
            })
            .filter(|name| !name.contains('/'))
            .collect();
        let aggregated: Vec<String> = [Aggregated::V2.named(&all), Aggregated::V2.core(&all)]
            .iter()
            .flat_map(|list| list["items"].as_array().unwrap().clone())
            .flat_map(|group| group["versions"][0]["resources"].as_array().unwrap().clone())
            .map(|it| it["resource"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(plain, aggregated);
        assert_eq!(plain.len(), all.len());
    }

    #[test]
    fn a_resource_list_names_subresources_and_short_names() {
        let served = served(|_| false);
        let list = resource_list(&served, "", "v1").unwrap();
        let find = |name: &str| list["resources"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
        assert_eq!(find("persistentvolumes")["shortNames"], json!(["pv"]));
        assert_eq!(find("persistentvolumes/status")["verbs"], json!(["get", "patch", "update"]));
        assert_eq!(find("pods")["categories"], json!(["all"]));
        assert_eq!(
            api_group(&served, "storage.k8s.io").unwrap()["preferredVersion"]["groupVersion"],
            "storage.k8s.io/v1"
        );
        assert_eq!(api_group(&served, "snapshot.storage.k8s.io").unwrap_err().code, 404);
        assert_eq!(resource_list(&served, "storage.k8s.io", "v2").unwrap_err().code, 404);
    }
}
