//! Health answers in the format of Kubernetes' own components. Pure.
//!
//! If all checks succeed: `200`, `ok`. If a check fails: `500`, and a line for each check, as `kubectl get --raw
//! /readyz` shows it for the API server. `?verbose` always shows the lines; `?exclude=name` skips a check. Unlike the
//! API server we show the reason, because nothing here is secret for clients that may probe the pod.

use super::report::ConditionReport;

/// One check and its current result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Which endpoint asks: `livez`, `readyz` or `leader-election`.
    pub endpoint: &'static str,
    /// What was found.
    pub conditions: Vec<ConditionReport>,
}

/// The answer to one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the probe succeeds: 200, else 500.
    pub healthy: bool,
    /// The answer's text.
    pub body: String,
}

impl Check {
    /// Answers a probe with this query string.
    pub fn answer(&self, query: &str) -> Verdict {
        let parameters: Vec<(&str, &str)> =
            query.split('&').map(|item| item.split_once('=').unwrap_or((item, ""))).collect();
        let verbose = parameters.iter().any(|(name, _)| *name == "verbose");
        let excluded = |name: &str| parameters.iter().any(|(key, value)| *key == "exclude" && *value == name);

        let line = |condition: &ConditionReport| {
            let name = &condition.name;
            match &condition.failure {
                _ if excluded(name) => format!("[+]{name} excluded: ok\n"),
                None => format!("[+]{name} ok\n"),
                Some(reason) => format!("[-]{name} failed: {}\n", one_line(reason)),
            }
        };
        let lines: String = self.conditions.iter().map(line).collect();
        let healthy = self.conditions.iter().all(|condition| condition.failure.is_none() || excluded(&condition.name));
        let body = match (healthy, verbose) {
            (true, false) => "ok".to_owned(),
            (true, true) => format!("{lines}{} check passed\n", self.endpoint),
            (false, _) => format!("{lines}{} check failed\n", self.endpoint),
        };
        Verdict { healthy, body }
    }
}

/// A reason must not look like another check's line.
fn one_line(reason: &str) -> String {
    reason.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(conditions: &[(&str, Option<&str>)]) -> Check {
        let condition = |(name, failure): &(&str, Option<&str>)| ConditionReport {
            name: (*name).to_owned(),
            failure: failure.map(str::to_owned),
        };
        Check { endpoint: "readyz", conditions: conditions.iter().map(condition).collect() }
    }

    #[test]
    fn all_well_is_a_bare_ok() {
        let check = check(&[("driver", None), ("caches", None)]);
        assert_eq!(check.answer(""), Verdict { healthy: true, body: "ok".to_owned() });
        assert_eq!(check.answer("verbose").body, "[+]driver ok\n[+]caches ok\nreadyz check passed\n");
        assert!(self::check(&[]).answer("").healthy);
    }

    #[test]
    fn a_failure_names_every_check_with_its_reason() {
        let check = check(&[("driver", Some("connecting for 12 s:\n[+]fake ok")), ("caches", None)]);
        let expected = "[-]driver failed: connecting for 12 s:; [+]fake ok\n[+]caches ok\nreadyz check failed\n";
        assert_eq!(check.answer(""), Verdict { healthy: false, body: expected.to_owned() });
    }

    #[test]
    fn an_excluded_check_does_not_fail() {
        let check = check(&[("driver", Some("gone")), ("caches", None)]);
        assert!(!check.answer("exclude=caches").healthy);
        let verdict = check.answer("exclude=driver&verbose");
        assert!(verdict.healthy);
        assert_eq!(verdict.body, "[+]driver excluded: ok\n[+]caches ok\nreadyz check passed\n");
    }
}
