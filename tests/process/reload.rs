//! The configuration file while the daemon runs: changed as kubelet does it, made invalid, and read on SIGHUP.

use std::cell::Cell;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use csi_control_plane::sandbox::api::Identity;
use csi_control_plane::sandbox::driver::{Action, Fault, Method, Outcome};
use csi_control_plane::sandbox::testbed::TestBed;
use serde_json::{Value, json};

use super::commits::Commit;
use super::program::{Program, eventually, role};
use super::theatre::{LEASE, Theatre};

const USER: &str = "daemon-reload";

/// A mounted ConfigMap: a folder with one link per key, through `..data` to a folder that is replaced as a whole.
struct Mount {
    folder: PathBuf,
    versions: Cell<u32>,
}

impl Mount {
    fn new(theatre: &Theatre, text: &str) -> Self {
        let folder = theatre.path("mounted");
        std::fs::create_dir(&folder).unwrap();
        let mount = Self { folder, versions: Cell::new(0) };
        mount.swap(text);
        symlink("..data/config.yaml", mount.folder.join("config.yaml")).unwrap();
        mount
    }

    /// What kubelet does: a new folder, a new link beside the old one, one rename, and the old folder goes.
    fn swap(&self, text: &str) {
        let old = std::fs::read_link(self.folder.join("..data")).ok();
        self.versions.set(self.versions.get() + 1);
        let version = format!("..2026_11_21_{}", self.versions.get());
        std::fs::create_dir(self.folder.join(&version)).unwrap();
        std::fs::write(self.folder.join(&version).join("config.yaml"), text).unwrap();
        symlink(&version, self.folder.join("..data_tmp")).unwrap();
        std::fs::rename(self.folder.join("..data_tmp"), self.folder.join("..data")).unwrap();
        if let Some(old) = old {
            std::fs::remove_dir_all(self.folder.join(old)).unwrap();
        }
    }

    fn file(&self) -> String {
        self.folder.join("config.yaml").to_str().unwrap().to_owned()
    }
}

fn start(theatre: &Theatre, config: &Value) -> (Mount, Program) {
    theatre.testbed.api.admit(TestBed::token(USER), Identity::admin(USER));
    let mount = Mount::new(theatre, &config.to_string());
    let daemon = Program::start(&["run", "--config", &mount.file()], &[("POD_NAMESPACE", "kube-system")]);
    (mount, daemon)
}

fn lines(daemon: &Program, message: &str) -> Vec<Value> {
    daemon.log().into_iter().filter(|line| line["message"] == message).collect()
}

#[tokio::test]
async fn a_change_restarts_the_one_role_that_it_touches_and_the_others_call_in_flight_ends_as_if_nothing_was() {
    let theatre = Theatre::open().await;
    let mut config = theatre.config(USER);
    let (mount, mut daemon) = start(&theatre, &config);
    let before = daemon.is("serving").await;
    theatre.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hold).once());
    theatre.attach("in-flight");
    theatre.publishing("in-flight").await;
    let listed = theatre.driver().calls_of(Method::ListVolumes).len();

    config["roles"]["reconciler"]["interval"] = "100ms".into();
    mount.swap(&config.to_string());
    let after = daemon.shows("the change", |status| status["configuration"]["changes"] == 1).await;
    eventually("listings at the new pace", async || {
        (theatre.driver().calls_of(Method::ListVolumes).len() > listed + 3).then_some(())
    })
    .await;
    theatre.driver().release();
    theatre.attached("in-flight").await;

    assert_eq!(after["configuration"]["lastChanged"], json!(["roles.reconciler.interval"]));
    for key in ["term", "leader", "lease", "restarts"] {
        assert_eq!(role(&after, "attacher")[key], role(&before, "attacher")[key], "{key}");
    }
    let anew = lines(&daemon, "the role's configuration changed: waiting for work in flight to end");
    assert_eq!(anew.iter().map(|line| &line["role"]).collect::<Vec<_>>(), ["reconciler"]);
    let outcomes: Vec<Outcome> = theatre.publishes("in-flight").into_iter().map(|call| call.outcome.clone()).collect();
    assert_eq!(outcomes, [Outcome::Ok]);
    let leases: Vec<Commit> = theatre.commits.all().into_iter().filter(|commit| commit.plural == "leases").collect();
    assert!(!leases.iter().any(Commit::is_release), "the Lease that both share was never handed back");
    let transitions = |commit: &Commit| commit.new["spec"]["leaseTransitions"].clone();
    assert!(leases.iter().all(|commit| transitions(commit) == transitions(&leases[0])));
    theatre.commits.assert_one_leader(LEASE);
    assert_eq!(theatre.driver().violations(), []);
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
}

#[tokio::test]
async fn a_file_with_faults_is_refused_with_all_of_them_and_the_old_one_stays_until_it_is_mended() {
    let theatre = Theatre::open().await;
    let config = theatre.config(USER);
    let (mount, daemon) = start(&theatre, &config);
    daemon.is("serving").await;
    let mut spoilt = config.clone();
    spoilt["csi"]["timeout"] = 15.into();
    spoilt["roles"]["attacher"]["workers"] = 0.into();
    spoilt["roles"]["painter"] = json!({});
    mount.swap(&spoilt.to_string());

    let status = daemon.shows("the refusal", |status| status["configuration"]["refused"].is_object()).await;
    let keys = ["csi.timeout", "roles.attacher.workers", "roles.painter"];
    let refused = &status["configuration"]["refused"];
    let told = refused["faults"].as_array().unwrap();
    assert_eq!((told.len(), &refused["because"]), (keys.len(), &json!("faults")));
    for (fault, key) in told.iter().zip(keys) {
        assert_eq!(fault["key"], key);
        assert_eq!(fault["origin"], format!("{}:1", mount.file()));
    }
    assert_eq!(status["overall"], "degraded");
    let page = daemon.get("/").await.body;
    for key in keys {
        assert!(page.contains(key), "{key} is on the page");
    }
    assert_eq!(daemon.get("/readyz").await.code, 200, "a bad file takes nobody out of service");
    let metrics = daemon.get("/metrics").await.body;
    assert!(metrics.contains("\ncsi_control_plane_config_last_reload_successful 0\n"), "{metrics}");
    // It works as before. That later looks at the same content tell nothing more is shown beside the code, where time is simulated.
    theatre.attach("volume");
    theatre.attached("volume").await;
    assert_eq!(lines(&daemon, "the new configuration is refused, the old one stays").len(), 1);
    let faults = lines(&daemon, "error in the new configuration");
    assert_eq!(faults.iter().map(|line| line["key"].as_str().unwrap()).collect::<Vec<_>>(), keys);

    mount.swap(&config.to_string());
    let mended = daemon.shows("no refusal", |status| status["configuration"]["refused"].is_null()).await;
    assert_eq!(mended["configuration"]["changes"], 0);
    daemon.logged("the configuration is the same as the one in effect").await;
    let metrics = daemon.get("/metrics").await.body;
    assert!(metrics.contains("\ncsi_control_plane_config_last_reload_successful 1\n"), "{metrics}");
}

#[tokio::test]
async fn sighup_has_it_look_at_once_and_the_logs_filter_changes_while_it_works() {
    let theatre = Theatre::open().await;
    let mut config = theatre.config(USER);
    let (mount, mut daemon) = start(&theatre, &config);
    daemon.is("serving").await;
    // Only the process that was asked answers that nothing is new.
    daemon.signal("HUP").await;
    daemon.logged("the configuration has not changed").await;
    let is_debug = |line: &Value| line["level"] == "DEBUG";
    assert!(!daemon.log().iter().any(is_debug));

    config["telemetry"] = json!({"logs": {"level": "info,csi_control_plane::csi=debug"}});
    mount.swap(&config.to_string());
    daemon.signal("HUP").await;
    daemon.logged("the configuration has changed").await;
    theatre.attach("heard");
    theatre.attached("heard").await;
    let request = daemon.logged("rpc request").await;
    assert!(is_debug(&request), "{request}");
    let tells_of = |volume: &str| daemon.log().iter().any(|line| line.to_string().contains(&format!("\"{volume}\"")));
    eventually("a line about the volume", async || tells_of("heard").then_some(())).await;
    assert!(daemon.log().iter().filter(|line| is_debug(line)).all(|line| line["target"] == request["target"]));
    assert!(lines(&daemon, "the role's configuration changed: waiting for work in flight to end").is_empty());

    config["telemetry"] = json!({"logs": {"level": "off"}});
    mount.swap(&config.to_string());
    daemon.signal("HUP").await;
    daemon.shows("silence", |status| status["configuration"]["changes"] == 2).await;
    theatre.attach("unheard");
    theatre.attached("unheard").await;
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0));
    // An earlier message may have been under way for long.
    let tells_of = |text: &str| daemon.log().iter().any(|line| line.to_string().contains(text));
    assert!(!tells_of("unheard") && !tells_of("stopping"), "{}", daemon.stderr());
}

#[tokio::test]
async fn a_key_that_needs_a_restart_is_named_and_nothing_of_its_file_is_applied() {
    let theatre = Theatre::open().await;
    let mut config = theatre.config(USER);
    let (mount, daemon) = start(&theatre, &config);
    daemon.is("serving").await;
    config["diagnostics"]["listen"] = "127.0.0.1:1".into();
    config["telemetry"] = json!({"logs": {"level": "trace"}});
    config["roles"]["attacher"]["workers"] = 3.into();
    mount.swap(&config.to_string());
    daemon.signal("HUP").await;
    let line = daemon.logged("the new configuration is refused, the old one stays").await;
    let summary = "a change of diagnostics.listen needs a restart of the process; nothing of the file was applied";
    assert_eq!((&line["because"], &line["summary"]), (&json!("needsRestart"), &json!(summary)));
    let status = daemon.shows("the refusal", |status| status["configuration"]["refused"].is_object()).await;
    assert_eq!(status["configuration"]["refused"]["summary"], summary);
    assert_eq!(status["configuration"]["changes"], 0);
    assert!(lines(&daemon, "the role's configuration changed: waiting for work in flight to end").is_empty());
    theatre.attach("volume");
    theatre.attached("volume").await;
    assert!(!daemon.log().iter().any(|line| line["level"] == "TRACE"));
}

#[tokio::test]
async fn a_file_can_be_mended_while_the_daemon_still_waits_for_its_driver() {
    let theatre = Theatre::open().await;
    let mut config = theatre.config(USER);
    theatre.testbed.server.restart(Duration::from_secs(600)).await;
    let (mount, daemon) = start(&theatre, &config);
    daemon.logged("waiting for the driver").await;
    config["roles"].as_object_mut().unwrap().remove("reconciler");
    mount.swap(&config.to_string());
    daemon.signal("HUP").await;
    let status = daemon.shows("the change", |status| status["configuration"]["changes"] == 1).await;
    assert_eq!(status["roles"].as_array().unwrap().len(), 1);
}
