//! What a check of the driver means, and which request begins one. Pure.

use std::time::Duration;

use super::names;

/// How one check ended (node-and-health spec A2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// The driver answers that it is ready, or answers without saying so.
    Ready,
    /// The driver answers that it is not ready.
    NotReady,
    /// There is no connection: the error with its causes.
    NoConnection {
        /// The socket, as configured.
        endpoint: String,
        /// Why.
        error: String,
    },
    /// The driver answers with an error.
    Failed(String),
    /// The driver does not answer within this time.
    NoAnswer(Duration),
}

impl Finding {
    /// Whether the driver is well.
    pub(super) fn is_healthy(&self) -> bool {
        matches!(self, Self::Ready)
    }

    /// The status code of the answer.
    pub(super) fn status(&self) -> u16 {
        if self.is_healthy() { 200 } else { 500 }
    }

    /// The body of the answer, which the kubelet puts into the Event.
    pub(super) fn body(&self) -> String {
        match self {
            Self::Ready => names::OK.to_owned(),
            Self::NotReady => names::NOT_READY.to_owned(),
            Self::NoConnection { endpoint, error } => format!("{endpoint}: {error}"),
            Self::Failed(error) => error.clone(),
            Self::NoAnswer(limit) => format!("driver did not answer Probe within {limit:?}"),
        }
    }

    /// For the metric.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Ready => "ok",
            Self::NotReady => "notReady",
            Self::NoConnection { .. } => "noConnection",
            Self::Failed(_) => "failed",
            Self::NoAnswer(_) => "noAnswer",
        }
    }
}

/// How many checks run at once: a driver that hangs is not asked more often (node-and-health spec A2).
pub(super) const MOST: usize = 4;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It begins a check of its own.
    Begin,
    /// It waits for the youngest check.
    Join,
}

/// What a request does while so many checks run.
pub(super) fn admit(running: usize) -> Admission {
    if running < MOST { Admission::Begin } else { Admission::Join }
}

/// Whether an answer is worth a line in the log: the first one, and each change between healthy and not.
pub(super) fn is_news(last: Option<&Finding>, now: &Finding) -> bool {
    last.is_none_or(|last| last.is_healthy() != now.is_healthy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Finding; 5] {
        [
            Finding::Ready,
            Finding::NotReady,
            Finding::NoConnection { endpoint: "unix:///csi.sock".into(), error: "connection refused".into() },
            Finding::Failed("rpc error: code = Internal desc = no backend".into()),
            Finding::NoAnswer(Duration::from_secs(3)),
        ]
    }

    #[test]
    fn only_a_ready_driver_is_healthy_and_each_other_finding_says_why() {
        let answers = all().map(|finding| (finding.status(), finding.body()));
        let expected = [
            (200, "ok"),
            (500, "driver responded but is not ready"),
            (500, "unix:///csi.sock: connection refused"),
            (500, "rpc error: code = Internal desc = no backend"),
            (500, "driver did not answer Probe within 3s"),
        ];
        assert_eq!(answers, expected.map(|(status, body)| (status, body.to_owned())));
    }

    #[test]
    fn a_fifth_request_joins() {
        use Admission::{Begin, Join};
        let admitted: Vec<_> = (0..6).map(admit).collect();
        assert_eq!(admitted, [Begin, Begin, Begin, Begin, Join, Join]);
    }

    #[test]
    fn the_log_has_changes_and_no_line_per_check() {
        let [ready, not_ready, no_connection, ..] = all();
        assert!(is_news(None, &ready) && is_news(None, &not_ready));
        assert!(!is_news(Some(&ready), &ready) && !is_news(Some(&not_ready), &no_connection));
        assert!(is_news(Some(&ready), &not_ready) && is_news(Some(&no_connection), &ready));
    }
}
