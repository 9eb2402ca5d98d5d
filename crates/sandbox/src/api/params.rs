//! The query of a request, as `ListOptions` and its siblings define it. Pure.

use std::time::Duration;

use axum::extract::Query;
use http::{Method, Uri};

use super::pure::rejection::Rejection;
use super::pure::strict::Directive;
use super::pure::table::Include;

/// The kind of the options of a create.
const CREATE_OPTIONS: &str = "CreateOptions";

/// All parameters that the server knows; each verb reads its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a parameter of its own, as the API has them")]
pub(crate) struct Params {
    pub(crate) watch: bool,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) version: Version,
    pub(crate) version_match: Option<Match>,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) force: bool,
    /// What the client wants to hear of fields that are dropped.
    pub(crate) validation: Directive,
    /// The part of their objects that a table's rows carry.
    pub(crate) include: Include,
    /// `preconditions`, `propagationPolicy` and the like may also come in the query of a DELETE; kubectl sends a body.
    pub(crate) propagation: Option<String>,
}

/// The `resourceVersion` parameter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// Not given: the most recent.
    #[default]
    Unset,
    /// `0`: any version that the server has at hand.
    Any,
    /// A version that the client has seen.
    At(u64),
}

/// The `resourceVersionMatch` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    Exact,
    NotOlderThan,
}

impl Params {
    pub(crate) fn parse(uri: &Uri) -> Result<Self, Rejection> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Rejection::bad_request(error.to_string()))?;
        let mut params =
            Self { watch: pairs.iter().any(|(name, value)| name == "watch" && truth(value)), ..Self::default() };
        for (name, value) in pairs {
            match name.as_str() {
                "watch" => params.watch = truth(&value),
                // A negative limit is none.
                "limit" => params.limit = usize::try_from(number::<i64>(&value)?).unwrap_or(0),
                "continue" => params.continue_token = value,
                "resourceVersion" => {
                    params.version = Version::parse(&value)
                        .map_err(|refusal| if params.watch { unparsed(&refusal) } else { refusal })?;
                }
                "resourceVersionMatch" => params.version_match = Match::parse(&value)?,
                "labelSelector" => params.label_selector = value,
                "fieldSelector" => params.field_selector = value,
                "timeoutSeconds" => {
                    params.timeout = Some(Duration::from_secs(number(&value)?)).filter(|it| !it.is_zero());
                }
                "allowWatchBookmarks" => params.bookmarks = truth(&value),
                "sendInitialEvents" => params.send_initial_events = Some(truth(&value)),
                "dryRun" => params.dry_run = dry_run(&value)?,
                "fieldManager" => params.field_manager = Some(value).filter(|it| !it.is_empty()),
                "fieldValidation" => params.validation = field_validation(&value)?,
                "force" => params.force = truth(&value),
                "includeObject" => params.include = Include::parse(&value),
                "propagationPolicy" => params.propagation = Some(value),
                // Like the real server, ignore unknown parameters.
                _ => {}
            }
        }
        params.check()?;
        Ok(params)
    }

    /// Checks for contradictions.
    fn check(&self) -> Result<(), Rejection> {
        let matched = self.version_match.is_some();
        let faults: [(bool, &str, &str); 6] = [
            (
                matched && self.watch && self.send_initial_events.is_none(),
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            (
                !self.watch && self.send_initial_events.is_some(),
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ),
            (
                self.watch && self.send_initial_events.is_some() && self.version_match != Some(Match::NotOlderThan),
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (
                matched && !self.watch && self.version == Version::Unset,
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                matched && !self.continue_token.is_empty(),
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            ),
            (
                self.version_match == Some(Match::Exact) && self.version == Version::Any,
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
        ];
        if matches!(self.version, Version::At(_)) && !self.continue_token.is_empty() {
            return Err(Rejection::bad_request("specifying resource version is not allowed when using continue"));
        }
        match faults.iter().find(|(found, ..)| *found) {
            Some((_, field, why)) => Err(invalid_options(field, "Forbidden", why)),
            None => Ok(()),
        }
    }
}

impl Version {
    fn parse(text: &str) -> Result<Self, Rejection> {
        match text {
            "" => Ok(Self::Unset),
            "0" => Ok(Self::Any),
            _ => text.parse().map(Self::At).map_err(|_| {
                Rejection::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
                ))
            }),
        }
    }
}

impl Match {
    fn parse(text: &str) -> Result<Option<Self>, Rejection> {
        match text {
            "" => Ok(None),
            "Exact" => Ok(Some(Self::Exact)),
            "NotOlderThan" => Ok(Some(Self::NotOlderThan)),
            _ => Err(invalid_options(
                "resourceVersionMatch",
                "Unsupported value",
                &format!("\"{text}\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
            )),
        }
    }
}

/// A watch's version that is no number: the real server forgot to make this one the client's fault.
fn unparsed(refusal: &Rejection) -> Rejection {
    let message = refusal.message.trim_start_matches("invalid resource version: ").to_owned();
    Rejection { code: 500, reason: "", message, details: None, retry_after: None }
}

/// Options that are refused, as the server words it for this kind that has no resource.
fn invalid_options(field: &str, fault: &str, why: &str) -> Rejection {
    let reason = if fault == "Forbidden" { "FieldValueForbidden" } else { "FieldValueNotSupported" };
    let cause = serde_json::json!({"reason": reason, "message": format!("{fault}: {why}"), "field": field});
    Rejection {
        code: 422,
        reason: "Invalid",
        message: format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {fault}: {why}"),
        details: Some(serde_json::json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]})),
        retry_after: None,
    }
}

/// `All` is the only dry run there is.
pub(crate) fn dry_run(value: &str) -> Result<bool, Rejection> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        _ => Err(unsupported("dryRun", &format!("[\"{value}\"]: supported values: \"All\""))),
    }
}

fn field_validation(value: &str) -> Result<Directive, Rejection> {
    Ok(match value {
        "" | "Warn" => Directive::Warn,
        "Ignore" => Directive::Ignore,
        "Strict" => Directive::Strict,
        _ => {
            let why = format!("\"{value}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"");
            return Err(unsupported("fieldValidation", &why));
        }
    })
}

/// An option of a write that has no such value, as a create words it; [`of_method`] names those of other writes.
fn unsupported(field: &str, why: &str) -> Rejection {
    let message = format!("Unsupported value: {why}");
    let cause = serde_json::json!({"field": field, "message": message, "reason": "FieldValueNotSupported"});
    Rejection {
        code: 422,
        reason: "Invalid",
        message: format!("{CREATE_OPTIONS}.meta.k8s.io \"\" is invalid: {field}: {message}"),
        details: Some(serde_json::json!({"group": "meta.k8s.io", "kind": CREATE_OPTIONS, "causes": [cause]})),
        retry_after: None,
    }
}

/// A refusal of options, named for those of this method.
pub(crate) fn of_method(method: &Method, mut refusal: Rejection) -> Rejection {
    let kind = match *method {
        Method::PUT => "UpdateOptions",
        Method::PATCH => "PatchOptions",
        _ => return refusal,
    };
    if let Some(found) = refusal.details.as_mut().and_then(|it| it.get_mut("kind")).filter(|it| **it == CREATE_OPTIONS)
    {
        *found = kind.into();
        refusal.message = refusal.message.replacen(CREATE_OPTIONS, kind, 1);
    }
    refusal
}

/// Go's reading of a boolean parameter: everything but `false` and `0` is true.
fn truth(value: &str) -> bool {
    !(value == "0" || value.eq_ignore_ascii_case("false"))
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, Rejection> {
    value.parse().map_err(|_| Rejection::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Params, Rejection> {
        Params::parse(&format!("/x?{query}").parse().unwrap())
    }

    #[test]
    fn what_kube_sends_is_understood() {
        let params = parse(
            "watch=true&timeoutSeconds=290&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        );
        let params = params.unwrap();
        assert!(params.watch && params.bookmarks && params.send_initial_events == Some(true));
        assert_eq!(params.timeout, Some(Duration::from_secs(290)));
        let params = parse("limit=500&continue=ab&labelSelector=a%3Db%2Cc").unwrap();
        assert_eq!((params.limit, params.label_selector.as_str()), (500, "a=b,c"));
    }

    #[test]
    fn contradictions_are_refused_in_the_servers_words() {
        let table = [
            ("resourceVersionMatch=Exact", 422, "is forbidden unless resourceVersion is provided"),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422, "is forbidden for resourceVersion \"0\""),
            ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
            ("watch=1&sendInitialEvents=1", 422, "requires setting resourceVersionMatch to NotOlderThan"),
            ("continue=x&resourceVersion=7", 400, "not allowed when using continue"),
            ("resourceVersion=x", 400, "invalid syntax"),
            ("limit=x", 400, "invalid syntax"),
            ("dryRun=Some", 422, "Unsupported value"),
            (
                "fieldValidation=No",
                422,
                "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"No\": supported values: \"\", \"Ignore\"",
            ),
        ];
        for (query, code, text) in table {
            let refusal = parse(query).unwrap_err();
            assert_eq!(refusal.code, code, "{query}");
            assert!(refusal.message.contains(text), "{query}: {}", refusal.message);
        }
        let refusal = of_method(&Method::PATCH, parse("dryRun=Some").unwrap_err());
        assert!(refusal.message.starts_with("PatchOptions.meta.k8s.io \"\" is invalid: dryRun"), "{}", refusal.message);
        assert_eq!(refusal.details.unwrap()["kind"], "PatchOptions");
        let refusal = of_method(&Method::PUT, parse("resourceVersion=x").unwrap_err());
        assert_eq!(refusal, parse("resourceVersion=x").unwrap_err(), "no options");
    }
}
