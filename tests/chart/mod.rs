//! Tests of the chart with Helm, `check` and a real API server: `just chart`.
//!
//! ```text
//! helm       runs it; a rendering is a list of objects
//! helm3      Helm's last major version makes the same of it
//! matrix     the sets of values in the chart's ci/, those whose roles this daemon has
//! node       the driver's node plugin beside the controller
//! pods       what a pod looks like: probes, mounts, security, placement
//! names      a namespace 1234 or a name `yes` stays a text
//! options    host network, labels, the image's registry, the users' objects, `helm test`
//! rollout    which changes of the configuration replace the pods
//! rights     the rendered RBAC is what `check` prints for the rendered configuration
//! checked    the configurations that the daemon refuses are refused, in the same words
//! values     what is refused, and that the schema of `config` is the daemon's own
//! promql     reads the expressions of alerts and dashboard
//! watching   every metric and label in them exists; promtool checks the alerts and plays them
//! runbook    each alert is explained in docs/operations.md
//! scraping   a real Prometheus scrapes a living daemon; promtool checks the scrape
//! kept       deploy/ is what the chart renders
//! cluster    a server-side dry run of everything
//! monitors   the kinds of the Prometheus operator, as far as we use them
//! installed  the daemon at work under the rendered account: each role, each mode, nothing forbidden
//! emptied    null in the place of each section and value
//! strings    numbers and switches where Kubernetes wants texts
//! ports      ports of the node: chosen, followed, and refused where two pods want one
//! lint       BuildKit's checks of the Dockerfile
//! ```

mod checked;
mod cluster;
mod emptied;
mod helm;
mod helm3;
mod installed;
mod kept;
mod lint;
mod matrix;
mod monitors;
mod names;
mod node;
mod options;
mod pods;
mod ports;
mod promql;
mod rights;
mod rollout;
mod runbook;
mod scraping;
mod strings;
mod values;
mod watching;
