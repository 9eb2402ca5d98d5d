//! Authentication by bearer tokens, and the part of RBAC that a role's manifest uses. Pure.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::pure::rejection::Rejection;
use crate::api::pure::resources::Resource;

/// The group of everyone who has shown who they are.
const AUTHENTICATED: &str = "system:authenticated";
/// The paths that everyone may read.
const PUBLIC: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
/// The paths that every authenticated user may read, with all below them.
const DISCOVERY: [&str; 3] = ["/api", "/apis", "/openapi"];
/// The reviews that every authenticated user may create.
const OWN_QUESTIONS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// The owner of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name in errors and in the audit log: `system:serviceaccount:kube-system:csi`.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The user's rights.
    pub policy: Policy,
}

impl Identity {
    /// A user who may do everything.
    pub fn admin(user: impl Into<String>) -> Self {
        let groups = ["system:masters", AUTHENTICATED].map(str::to_owned).to_vec();
        Self { user: user.into(), groups, policy: Policy::Everything }
    }

    /// A user who may do what these grants say, and nothing else.
    pub fn limited(user: impl Into<String>, grants: Vec<Grant>) -> Self {
        Self { user: user.into(), groups: vec![AUTHENTICATED.to_owned()], policy: Policy::Grants(grants) }
    }

    /// Whoever shows no token: kube-apiserver takes requests from them (`--anonymous-auth`, on by default), and RBAC allows
    /// them nothing but the version and the probes.
    pub(crate) fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { user: "system:anonymous".to_owned(), groups, policy: Policy::Grants(Vec::new()) }
    }

    fn is_authenticated(&self) -> bool {
        self.groups.iter().any(|group| group == AUTHENTICATED)
    }

    /// Whether they may do this with objects: by their own rights, or by those that RBAC gives to everyone it knows
    /// (`system:basic-user`: to ask about oneself).
    pub(crate) fn may(&self, access: &Access<'_>) -> bool {
        let basic = access.verb == "create" && OWN_QUESTIONS.contains(&(access.group, access.resource));
        self.policy.allows(access) || (basic && self.is_authenticated())
    }

    /// Whether they may read a document: by RBAC's `system:public-info-viewer` for everyone and `system:discovery` for everyone
    /// it knows.
    pub(crate) fn may_read(&self, verb: &str, path: &str) -> bool {
        let is_public = PUBLIC.contains(&path);
        let is_below =
            |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let is_discovery = || DISCOVERY.into_iter().any(is_below);
        let by_grants = verb == "get" && (is_public || (self.is_authenticated() && is_discovery()));
        self.policy == Policy::Everything || by_grants
    }
}

/// The rights of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// Everything.
    Everything,
    /// Only the requests that one of these grants.
    Grants(Vec<Grant>),
}

/// One rule, bound to the whole cluster or to a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The namespace of a `Role`; `None` for a `ClusterRole`.
    pub namespace: Option<String>,
    /// The rule.
    pub rule: PolicyRule,
}

/// A rule as `ClusterRole` and `Role` spell it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// API groups; `""` is core, `*` all of them.
    pub api_groups: Vec<String>,
    /// Plurals, with `/status` for the subresource; `*` for all.
    pub resources: Vec<String>,
    /// If not empty, only objects of these names.
    pub resource_names: Vec<String>,
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
}

impl Grant {
    /// Every rule of a `ClusterRole` or `Role` object; a `Role`'s hold in its own namespace.
    pub fn of_role(role: &Value) -> Result<Vec<Self>, serde_json::Error> {
        let rules = role.get("rules").cloned().unwrap_or_else(|| json!([]));
        let namespace = (role.get("kind").and_then(Value::as_str) == Some("Role"))
            .then(|| role.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default").to_owned());
        let rules: Vec<PolicyRule> = serde_json::from_value(rules)?;
        Ok(rules.into_iter().map(|rule| Self { namespace: namespace.clone(), rule }).collect())
    }

    fn allows(&self, access: &Access<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let resource = access.full_resource();
        // `*/status` is the status of everything.
        let wild = format!("*/{}", access.subresource);
        let rule = &self.rule;
        self.namespace.as_deref().is_none_or(|namespace| namespace == access.namespace)
            && has(&rule.verbs, access.verb)
            && has(&rule.api_groups, access.group)
            && (has(&rule.resources, &resource) || (!access.subresource.is_empty() && rule.resources.contains(&wild)))
            && (rule.resource_names.is_empty() || rule.resource_names.iter().any(|name| name == access.name))
    }
}

/// The request, as an authorizer sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Access<'_> {
    fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

impl Policy {
    pub(crate) fn allows(&self, access: &Access<'_>) -> bool {
        match self {
            Self::Everything => true,
            Self::Grants(grants) => grants.iter().any(|grant| grant.allows(access)),
        }
    }
}

/// The refusal of a request that `identity` may not make, in RBAC's words.
pub(crate) fn forbidden(identity: &Identity, access: &Access<'_>) -> Rejection {
    let scope = if access.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", access.namespace)
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {scope}",
        identity.user,
        access.verb,
        access.full_resource(),
        access.group
    );
    Rejection::forbidden(access.group, access.resource, access.name, why)
}

/// The refusal of a document.
pub(crate) fn forbidden_document(identity: &Identity, verb: &str, path: &str) -> Rejection {
    Rejection::forbidden("", "", "", format!("User \"{}\" cannot {verb} path \"{path}\"", identity.user))
}

/// Answers a question about the asker's own rights; `None` for other kinds.
pub(crate) fn review(resource: &Resource, identity: &Identity, mut question: Value) -> Option<Value> {
    let status = match resource.plural {
        "selfsubjectreviews" => json!({"userInfo": {"username": identity.user, "groups": identity.groups}}),
        "selfsubjectaccessreviews" => access_review(identity, &question),
        "selfsubjectrulesreviews" => rules_review(identity, &question),
        _ => return None,
    };
    let map = question.as_object_mut()?;
    map.insert("apiVersion".to_owned(), resource.api_version().into());
    map.insert("kind".to_owned(), resource.kind.into());
    map.entry("metadata").or_insert_with(|| json!({}));
    map.insert("status".to_owned(), status);
    Some(question)
}

fn access_review(identity: &Identity, question: &Value) -> Value {
    let text = |field: &str| {
        question
            .pointer("/spec/resourceAttributes")
            .and_then(|asked| asked.get(field))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let access = Access {
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    };
    if question.pointer("/spec/resourceAttributes").is_none() || identity.may(&access) {
        json!({"allowed": true})
    } else {
        json!({"allowed": false})
    }
}

fn rules_review(identity: &Identity, question: &Value) -> Value {
    let namespace = question.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
    let all = PolicyRule {
        api_groups: vec!["*".to_owned()],
        resources: vec!["*".to_owned()],
        resource_names: Vec::new(),
        verbs: vec!["*".to_owned()],
    };
    let rules: Vec<&PolicyRule> = match &identity.policy {
        Policy::Everything => vec![&all],
        Policy::Grants(grants) => grants
            .iter()
            .filter(|grant| grant.namespace.as_deref().is_none_or(|it| it == namespace))
            .map(|grant| &grant.rule)
            .collect(),
    };
    let rules: Vec<Value> = rules
        .into_iter()
        .map(|rule| {
            json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
                   "resourceNames": rule.resource_names})
        })
        .collect();
    json!({"resourceRules": rules, "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["*"]}],
           "incomplete": false})
}

/// A bearer token. Its text is never shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(String);

impl Token {
    /// The text of the token, for a client's configuration.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Token {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pure::resources;

    fn limited() -> Identity {
        let role = json!({"kind": "ClusterRole", "rules": [
            {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get", "list"]},
            {"apiGroups": ["storage.k8s.io"], "resources": ["volumeattachments/status"], "verbs": ["patch"]},
        ]});
        let lease = json!({"kind": "Role", "metadata": {"namespace": "kube-system"}, "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["one"], "verbs": ["*"]},
        ]});
        let mut grants = Grant::of_role(&role).unwrap();
        grants.extend(Grant::of_role(&lease).unwrap());
        Identity::limited("x", grants)
    }

    fn access<'a>(
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        sub: &'a str,
        ns: &'a str,
        name: &'a str,
    ) -> Access<'a> {
        Access { verb, group, resource, subresource: sub, namespace: ns, name }
    }

    #[test]
    fn rules_allow_what_they_name_and_nothing_else() {
        let policy = limited().policy;
        let table = [
            (access("list", "", "persistentvolumes", "", "", ""), true),
            (access("patch", "", "persistentvolumes", "", "", "pv"), false),
            (access("patch", "storage.k8s.io", "volumeattachments", "status", "", "va"), true),
            (access("patch", "storage.k8s.io", "volumeattachments", "", "", "va"), false),
            (access("update", "coordination.k8s.io", "leases", "", "kube-system", "one"), true),
            (access("update", "coordination.k8s.io", "leases", "", "kube-system", "two"), false),
            (access("update", "coordination.k8s.io", "leases", "", "default", "one"), false),
        ];
        for (asked, allowed) in table {
            assert_eq!(policy.allows(&asked), allowed, "{asked:?}");
        }
    }

    #[test]
    fn a_refusal_is_worded_as_rbac_words_it() {
        let refusal = forbidden(&limited(), &access("patch", "", "persistentvolumes", "status", "", "pv-1"));
        assert_eq!(
            refusal.message,
            "persistentvolumes \"pv-1\" is forbidden: User \"x\" cannot patch resource \"persistentvolumes/status\" in API \
             group \"\" at the cluster scope"
        );
        assert_eq!((refusal.code, refusal.reason), (403, "Forbidden"));
        let refusal = forbidden_document(&Identity::anonymous(), "get", "/apis");
        assert_eq!(refusal.message, "forbidden: User \"system:anonymous\" cannot get path \"/apis\"");
    }

    #[test]
    fn everyone_may_read_the_version_and_whoever_is_known_what_there_is() {
        let (nobody, known, admin) = (Identity::anonymous(), limited(), Identity::admin("a"));
        let table = [
            ("get", "/version", true, true),
            ("get", "/readyz", true, true),
            ("get", "/api", false, true),
            ("get", "/apis/storage.k8s.io/v1", false, true),
            ("get", "/openapi/v3", false, true),
            ("get", "/apisx", false, false),
            ("get", "/metrics", false, false),
            ("post", "/version", false, false),
        ];
        for (verb, path, by_nobody, by_known) in table {
            assert_eq!(nobody.may_read(verb, path), by_nobody, "{verb} {path}");
            assert_eq!(known.may_read(verb, path), by_known, "{verb} {path}");
            assert!(admin.may_read(verb, path), "{verb} {path}");
        }
        let question = access("create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "", "");
        assert_eq!([&nobody, &known, &admin].map(|it| it.may(&question)), [false, true, true]);
    }

    #[test]
    fn a_user_can_ask_about_itself() {
        let resource = resources::find("authorization.k8s.io", "v1", "selfsubjectaccessreviews").unwrap();
        let ask = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "persistentvolumes"}}});
        for (verb, allowed) in [("get", true), ("delete", false)] {
            let answer = review(resource, &limited(), ask(verb)).unwrap();
            assert_eq!(answer["status"]["allowed"], allowed, "{verb}");
        }
    }
}
