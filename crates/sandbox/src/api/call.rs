//! Parses a request's method, path and query. Pure.

use http::{Method, Uri};

use super::auth::Access;
use super::params::{self, Params};
use super::pure::rejection::Rejection;
use super::pure::resources::{self, Resource};
use super::pure::selector::Fields;

/// A request for objects.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static Resource,
    /// Empty for the cluster scope and for lists over all namespaces.
    pub(crate) namespace: String,
    /// Empty for lists and creates.
    pub(crate) name: String,
    /// `status`, or nothing.
    pub(crate) subresource: String,
    pub(crate) params: Params,
}

/// A place in the API, as the path says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    group: String,
    version: String,
    namespace: String,
    plural: String,
    name: String,
    subresource: String,
}

impl Call {
    /// Reads a request; `None` if its path is no place for objects (discovery and the like).
    pub(crate) fn parse(method: &Method, uri: &Uri) -> Result<Option<Self>, Rejection> {
        let Some(place) = Place::of(uri.path()) else { return Ok(None) };
        let resource = resources::find(&place.group, &place.version, &place.plural).ok_or_else(|| place.not_found())?;
        let params = Params::parse(uri).map_err(|refusal| params::of_method(method, refusal))?;
        let named = !place.name.is_empty();
        if !resource.namespaced && !place.namespace.is_empty() {
            return Err(Rejection::path_not_found());
        }
        let writes_one = matches!(*method, Method::PUT | Method::PATCH) || (*method == Method::GET && named);
        let verb = verb(method, named, params.watch)
            .ok_or_else(|| Rejection::method_not_allowed(resource, method.as_str()))?;
        let has_subresource = match place.subresource.as_str() {
            "" => true,
            "status" => resource.has_status && resources::STATUS_VERBS.contains(&verb),
            _ => false,
        };
        if !has_subresource {
            // The server of definitions looks for the object first, and then says that it is not there.
            let is_of_definition = resource.optional && place.subresource == "status";
            let rejection = Rejection::not_found(resource, &place.name);
            return Err(if is_of_definition { rejection } else { Rejection::path_not_found() });
        }
        let misplaced = (writes_one && !named)
            || (verb == "create" && named)
            || (resource.namespaced && place.namespace.is_empty() && !matches!(verb, "list" | "watch"));
        if !resource.can(verb) || misplaced {
            return Err(Rejection::method_not_allowed(resource, method.as_str()));
        }
        let mut name = place.name;
        if matches!(verb, "list" | "watch" | "deletecollection")
            && let Ok(fields) = Fields::parse(resource, &params.field_selector)
            && let Some(only) = fields.name()
        {
            // The list or watch of one object is that object's, for RBAC's `resourceNames`.
            only.clone_into(&mut name);
        }
        let (namespace, subresource) = (place.namespace, place.subresource);
        Ok(Some(Self { verb, resource, namespace, name, subresource, params }))
    }

    /// Whether the request changes anything.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }

    /// A call as a test needs it.
    #[cfg(test)]
    pub(crate) fn for_test(verb: &'static str, plural: &str, name: &str) -> Self {
        let resource = resources::RESOURCES.iter().find(|resource| resource.plural == plural).unwrap();
        let (namespace, subresource) = (String::new(), String::new());
        Self { verb, resource, namespace, name: name.to_owned(), subresource, params: Params::default() }
    }
}

/// What a request does to a place.
fn verb(method: &Method, named: bool, watch: bool) -> Option<&'static str> {
    Some(match *method {
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD if watch => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => return None,
    })
}

impl Place {
    /// What an authorizer is asked about a request, whether or not there is such a thing; `call` is the request, if there is.
    pub(crate) fn access<'a>(&'a self, method: &Method, uri: &Uri, call: Option<&'a Call>) -> Access<'a> {
        let watches = || Params::parse(uri).is_ok_and(|params| params.watch);
        let verb = call.map(|call| call.verb).or_else(|| verb(method, !self.name.is_empty(), watches()));
        Access {
            verb: verb.unwrap_or_default(),
            group: &self.group,
            resource: &self.plural,
            subresource: &self.subresource,
            // The real server takes a namespace to be within itself.
            namespace: if self.plural == "namespaces" { &self.name } else { &self.namespace },
            name: call.map_or(&self.name, |call| &call.name),
        }
    }

    fn not_found(&self) -> Rejection {
        let known = |it: &Resource| it.group == self.group && it.version == self.version;
        let is_known = resources::served(|_| false).into_iter().any(known);
        if is_known { Rejection::path_not_found() } else { Rejection::group_not_found() }
    }

    /// The place that a path names; `None` if it is none for objects.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let segments: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // `/namespaces/x/status` is the namespace's own.
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource @ ..] => (*plural, *name, *subresource.first()?),
            [] => return None,
        };
        let [group, version, namespace, plural, name, subresource] =
            [group, version, namespace, plural, name, subresource].map(str::to_owned);
        Some(Self { group, version, namespace, plural, name, subresource })
    }
}

/// Resolves `%2F` and its like; what is no valid escape stays as it is.
fn decode(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = escaped {
            bytes.push(byte);
            rest = tail.get(2..).unwrap_or_default();
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, uri: &str) -> Result<Option<Call>, Rejection> {
        Call::parse(&method.parse().unwrap(), &uri.parse().unwrap())
    }

    #[test]
    fn paths_are_read_as_the_real_server_reads_them() {
        let table = [
            ("GET", "/api/v1/persistentvolumes", ("list", "persistentvolumes", "", "", "")),
            ("GET", "/api/v1/persistentvolumes?watch=1", ("watch", "persistentvolumes", "", "", "")),
            ("GET", "/api/v1/namespaces/a%2Db", ("get", "namespaces", "", "a-b", "")),
            ("PUT", "/api/v1/namespaces/a/status", ("update", "namespaces", "", "a", "status")),
            ("DELETE", "/api/v1/namespaces/a/secrets", ("deletecollection", "secrets", "a", "", "")),
            ("POST", "/api/v1/namespaces/a/events", ("create", "events", "a", "", "")),
            (
                "PATCH",
                "/apis/storage.k8s.io/v1/volumeattachments/x/status",
                ("patch", "volumeattachments", "", "x", "status"),
            ),
            (
                "GET",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases?watch=true&fieldSelector=metadata.name%3Done",
                ("watch", "leases", "a", "one", ""),
            ),
        ];
        for (method, uri, wanted) in table {
            let call = parse(method, uri).unwrap().unwrap();
            let found = (
                call.verb,
                call.resource.plural,
                call.namespace.as_str(),
                call.name.as_str(),
                call.subresource.as_str(),
            );
            assert_eq!(found, wanted, "{method} {uri}");
        }
    }

    #[test]
    fn places_without_objects_are_refused_or_left_to_discovery() {
        for uri in ["/api", "/api/v1", "/apis/storage.k8s.io/v1", "/version"] {
            assert!(parse("GET", uri).unwrap().is_none(), "{uri}");
        }
        let table = [
            ("GET", "/api/v1/gadgets", 404),
            ("PATCH", "/api/v1/namespaces/a/secrets/x/status", 404),
            ("POST", "/api/v1/namespaces/a/serviceaccounts/x/token", 404),
            ("PUT", "/api/v1/persistentvolumes", 405),
            ("POST", "/api/v1/secrets", 405),
            ("DELETE", "/api/v1/namespaces", 405),
            ("GET", "/apis/authentication.k8s.io/v1/selfsubjectreviews", 405),
        ];
        for (method, uri, code) in table {
            assert_eq!(parse(method, uri).unwrap_err().code, code, "{method} {uri}");
        }
    }
}
