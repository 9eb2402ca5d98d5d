//! Texts that are no YAML, or more than the tree of one document can hold.

use super::*;

/// Aliases of aliases, of which a parser must not make what they stand for.
const BOMB: &str = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n\
    c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]\n\
    e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e]\n";

#[test]
fn a_number_beyond_64_bits_is_a_fault_like_another_and_hides_none() {
    let text = "csi: {timeout: 15, endpoint: 18446744073709551616}\nroles:\n  painter:\n    brushes: 99999999999999999999\n    coats: -99999999999999999999\n\
        99999999999999999999: x\ntelemetry: {traces: {sampleRatio: 18446744073709551616}}\n";
    let told = faults(text, &[("CSI_CONTROL_PLANE_ROLES__PAINTER__BRUSHES", "18446744073709551616")]);
    let expected = [
        "99999999999999999999: an unknown key -> one of csi, diagnostics, kubernetes, leaderElection, roles, runtime, telemetry \
         (config.yaml:6)"
            .to_owned(),
        "csi.endpoint: 18446744073709551616 -> a text (config.yaml:1)".to_owned(),
        format!("csi.timeout: 15 -> {} (config.yaml:1)", duration::ALLOWED),
        "roles.painter.brushes: 99999999999999999999 -> a whole number from 1 to 4294967295 (config.yaml:4)".to_owned(),
        "roles.painter.brushes: 18446744073709551616 -> a whole number from 1 to 4294967295 (environment variable \
         CSI_CONTROL_PLANE_ROLES__PAINTER__BRUSHES)"
            .to_owned(),
        "roles.painter.coats: -99999999999999999999 -> a whole number from 0 to 4294967295, or null (config.yaml:5)".to_owned(),
        "telemetry.traces.sampleRatio: 18446744073709551616 -> a number from 0 to 1 (config.yaml:7)".to_owned(),
    ];
    assert_eq!(told, expected);
}

#[test]
fn text_that_is_no_yaml_is_told_with_line_and_column() {
    for (text, origin, found) in [
        ("csi:\n  timeout: 1s\n endpoint: x\n", "config.yaml:3:2", "`endpoint: x`: "),
        ("csi: [1", "config.yaml:2:1", "while parsing a flow sequence"),
        ("a: &x\nb: *y\n", "config.yaml:2:4", "unknown anchor"),
        ("csi: !tag x\n", "config.yaml:1:6", "`csi: !tag x`: "),
        ("csi: {}\n---\nroles: {}\n", "config.yaml:2", "a second document"),
        ("csi: {}\n\n...\nroles: {}\n", "config.yaml:4", "a second document"),
        (
            "csi:\n  timeout: 1s\nroles: {pain\0ter: {}}\n",
            "config.yaml:3:13",
            "the character U+0000, behind `roles: {pain`",
        ),
        ("csi: {endpoint: \u{1b}[0m}\n", "config.yaml:1:17", "the character U+001B, behind `csi: {endpoint:`"),
        (BOMB, "config.yaml:5", "`e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]`: too many aliases"),
        ("\tcsi: {}\n", "config.yaml:1:1", "a tab at line 1, column 1, before `csi: {}`"),
        (
            "csi:\n  timeout: 1s\n  \tendpoint: /x\n",
            "config.yaml:3:3",
            "a tab at line 3, column 3, before `endpoint: /x`",
        ),
        ("csi:\n  timeout: 1s\n\t\nroles: {}\n", "config.yaml:3:1", "a tab at line 3, column 1"),
    ] {
        let rejected = load(&sources(text, &[]), ROLES).expect_err(text);
        let [fault] = rejected.faults.as_slice() else { panic!("{text}: {rejected}") };
        assert_eq!(fault.origin.as_deref(), Some(origin), "{text}: {rejected}");
        assert!(fault.found.contains(found), "{text}: {rejected}");
        assert_eq!(fault.allowed.contains("spaces"), text.contains('\t'), "{rejected}");
    }
}
