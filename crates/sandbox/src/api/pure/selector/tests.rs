use super::*;
use crate::api::pure::resources::find;
use serde_json::json;

#[test]
fn label_selectors_match_as_their_grammar_says() {
    let object = json!({ "metadata": { "labels": { "app": "web", "tier": "front", "n": "5", "example.com/x": "", } } });
    let cases = [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web", true),
        ("app=db", false),
        ("app!=db", true),
        ("missing!=db", true),
        ("missing=", false),
        ("example.com/x=", true),
        ("app", true),
        ("missing", false),
        ("!app", false),
        ("!missing", true),
        ("! missing", true),
        ("app in (web,db)", true),
        ("app in ( web , db )", true),
        ("app in (db)", false),
        ("app notin (db)", true),
        ("app notin (web)", false),
        ("missing notin (web)", true),
        ("missing in (web)", false),
        ("app=web,tier=front", true),
        ("app=web,tier=back", false),
        ("app in (web),!missing,tier!=back", true),
        ("n>4", true),
        ("n<5", false),
        ("app>4", false),
    ];
    for (selector, expected) in cases {
        assert_eq!(Labels::parse(selector).unwrap().matches(&object), expected, "{selector}");
    }
}

#[test]
fn broken_label_selectors_are_bad_requests() {
    let cases = [
        ("=web", "unable to parse requirement: found '=', expected: identifier"),
        ("app in web", "unable to parse requirement: found 'web' expected: '('"),
        ("app in (web", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("app web", "unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt"),
        ("app=web db", "found 'db', expected: ',' or 'end of string'"),
        ("app=web,", "unable to parse requirement: found '', expected: identifier"),
    ];
    for (selector, message) in cases {
        let rejection = Labels::parse(selector).unwrap_err();
        assert_eq!((rejection.code, rejection.message.as_str()), (400, message), "{selector}");
    }
    assert_eq!(Labels::parse("app=-web").unwrap_err().code, 400);
}

#[test]
fn field_selectors_match_what_the_kind_indexes() {
    let pods = find("", "v1", "pods").unwrap();
    let pod = json!({ "metadata": { "name": "a", "namespace": "ns" }, "spec": { "nodeName": "n1" }, "status": { "phase": "Running" } });
    let nodes = find("", "v1", "nodes").unwrap();
    let events = find("", "v1", "events").unwrap();
    let event = json!({ "involvedObject": { "name": "pv-1", "uid": "u" }, "reason": "FailedAttachVolume", "source": { "component": "c" } });
    let cases = [
        (pods, &pod, "", true),
        (pods, &pod, "metadata.name=a", true),
        (pods, &pod, "metadata.name=b", false),
        (pods, &pod, "metadata.name!=b", true),
        (pods, &pod, "spec.nodeName=n1,status.phase==Running", true),
        (pods, &pod, "spec.nodeName=", false),
        (nodes, &pod, "spec.unschedulable=false", true),
        (events, &event, "involvedObject.uid=u,reason=FailedAttachVolume,source=c", true),
        (events, &event, "involvedObject.name=pv\\-1", true),
    ];
    for (resource, object, selector, expected) in cases {
        assert_eq!(Fields::parse(resource, selector).unwrap().matches(object), expected, "{selector}");
    }
    assert_eq!(Fields::parse(pods, "metadata.name=a").unwrap().name(), Some("a"));
}

#[test]
fn fields_that_are_not_indexed_are_refused() {
    let cases = [
        ("", "pods", "spec.foo=1", "field label not supported: spec.foo"),
        ("", "nodes", "metadata.namespace=x", "field label not supported: metadata.namespace"),
        (
            "storage.k8s.io",
            "volumeattachments",
            "spec.nodeName=n",
            "\"spec.nodeName\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("", "pods", "whatever", "invalid selector: 'whatever'; can't understand 'whatever'"),
    ];
    for (group, plural, selector, message) in cases {
        let rejection = Fields::parse(find(group, "v1", plural).unwrap(), selector).unwrap_err();
        assert_eq!((rejection.code, rejection.message.as_str()), (400, message));
    }
}
