//! Attach-detach spec 5, 6 and 7, row by row.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{Pod, VolumeAttachment};
use crate::roles::attach_detach::config::{AttachDetachSection, MultiAttach};
use crate::roles::attach_detach::memory::{Phase, SiteMemory};
use crate::roles::attach_detach::volume_id::VolumeId;
use crate::roles::attach_detach::wishes::Wish;

use super::super::gate::Standing;
use super::super::view::{Held, News, Rules, Volume, What, Wisher};
use super::*;

pub(super) const READY: Standing = Standing::There { in_use: false, out_of_service: false, is_ready: true };
pub(super) const BUSY: Standing = Standing::There { in_use: true, out_of_service: false, is_ready: true };
const LOST: Standing = Standing::There { in_use: true, out_of_service: false, is_ready: false };
const TAINTED: Standing = Standing::There { in_use: true, out_of_service: true, is_ready: false };
const LONG: Duration = Duration::from_secs(361);

pub(super) fn id() -> VolumeId {
    VolumeId::new("demo", "v")
}

/// A pod of `shop` that was made in this second.
pub(super) fn pod(name: &str, second: u32) -> Arc<Pod> {
    let object = json!({ "metadata": { "name": name, "namespace": "shop", "uid": name,
        "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z") }, "spec": { "nodeName": "n" } });
    Arc::new(serde_json::from_value(object).unwrap())
}

pub(super) fn wisher(name: &str, second: u32) -> Wisher {
    Wisher { pod: pod(name, second), wish: Wish { id: id(), volume: Some("pv".into()) } }
}

pub(super) fn attachment(node: &str, status: &Value, deleted: bool) -> Arc<VolumeAttachment> {
    let deletion = deleted.then_some("2026-01-02T00:00:00Z");
    let object = json!({ "metadata": { "name": id().attachment_name(node), "uid": format!("va-{node}"), "deletionTimestamp": deletion },
        "spec": { "attacher": "demo", "nodeName": node, "source": { "persistentVolumeName": "pv" } }, "status": status });
    Arc::new(serde_json::from_value(object).unwrap())
}

pub(super) fn site(attachment: Held) -> Site {
    Site {
        is_managed: true,
        standing: READY,
        is_registered: true,
        wishers: Vec::new(),
        attachment,
        is_reported: false,
        is_written: true,
        memory: SiteMemory { is_kept: true, ..SiteMemory::default() },
        age: Duration::ZERO,
        until_retry: Duration::ZERO,
    }
}

fn live(node: &str) -> Held {
    Held::Fits(attachment(node, &json!({ "attached": true }), false))
}

fn pending(node: &str) -> Held {
    Held::Fits(attachment(node, &json!({ "attached": false }), false))
}

fn deleting(node: &str) -> Held {
    Held::Fits(attachment(node, &json!({ "attached": true }), true))
}

pub(super) fn wanted(mut site: Site, pod: &str, second: u32) -> Site {
    site.wishers.push(wisher(pod, second));
    site
}

fn reported(site: Site) -> Site {
    Site { is_reported: true, ..site }
}

fn on(standing: Standing, site: Site) -> Site {
    Site { standing, ..site }
}

/// It has been in its phase for this long, and that is remembered.
pub(super) fn lasting(mut site: Site, age: Duration) -> Site {
    site.memory.uid = site.uid().into();
    site.memory.phase = site.phase().map(|phase| (phase, tokio::time::Instant::now()));
    Site { age, ..site }
}

pub(super) fn withdrawn(mut site: Site, withdrawal: Withdrawal) -> Site {
    site.memory.withdrawal = Some(withdrawal);
    site
}

/// An exclusive volume with these nodes, of which all is remembered.
pub(super) fn view(sites: Vec<(&str, Site)>) -> View {
    let sites: BTreeMap<String, Site> = sites
        .into_iter()
        .map(|(node, site)| {
            (node.to_owned(), if site.memory.phase.is_none() { lasting(site, Duration::ZERO) } else { site })
        })
        .collect();
    let remembered: BTreeSet<String> =
        sites.iter().filter(|(_, site)| site.memory.phase.is_some()).map(|(node, _)| node.clone()).collect();
    View {
        id: id(),
        volume: Some(Volume { name: "pv".into(), is_exclusive: true, uid: "pv".into() }),
        permit: Permit::Yes,
        until_detach: Duration::ZERO,
        rules: Rules::of(&AttachDetachSection::default()),
        sites,
        has_foreign: false,
        remembered,
    }
}

fn shared(view: View) -> View {
    View { volume: view.volume.map(|volume| Volume { is_exclusive: false, ..volume }), ..view }
}

fn step(view: &View) -> Next<Step> {
    next_step(view, &Progress::default())
}

fn create(nodes: &[&str]) -> Next<Step> {
    Next::Together(nodes.iter().map(|node| Step::Create((*node).to_owned())).collect())
}

fn delete(node: &str, force: Option<Force>) -> Next<Step> {
    Next::Together(vec![Step::Delete(node.to_owned(), force)])
}

fn withdraw(node: &str) -> Next<Step> {
    Next::Do(Step::Withdraw(vec![node.to_owned()]))
}

fn restore(node: &str) -> Next<Step> {
    Next::Do(Step::Restore(vec![node.to_owned()]))
}

fn wait(seconds: u64) -> Next<Step> {
    Next::Do(Step::Wait(Duration::from_secs(seconds)))
}

/// What is told: the pods and the texts.
fn told(view: &View) -> Vec<(String, String)> {
    let Next::Do(Step::Tell(news)) = step(view) else { return Vec::new() };
    let texts = |News { node, what, .. }: News| match what {
        What::AttachFailed(texts) => {
            texts.into_iter().map(|(pod, text)| (pod.metadata.name.to_string(), text)).collect()
        }
        What::DetachFailed(text) => vec![(node, text)],
    };
    news.into_iter().flat_map(texts).collect::<Vec<_>>()
}

#[test]
fn section_5_case_by_case_for_one_node() {
    let n = "n";
    let confirmed = |site| withdrawn(lasting(site, LONG), Withdrawal::Confirmed);
    for (row, site, expected) in [
        ("5.1", site(Held::None), Next::Done),
        ("5.2: the writer of the status takes it out", reported(site(Held::None)), Next::Done),
        ("5.3", reported(site(live(n))), withdraw(n)),
        ("5.3, never attached (D14)", site(pending(n)), withdraw(n)),
        ("5.4: the writer takes it out", reported(site(deleting(n))), wait(120)),
        ("5.5", site(deleting(n)), wait(120)),
        ("5.6 and D17: first out of the report", reported(wanted(site(Held::None), "a", 0)), Next::Done),
        ("5.7", wanted(site(Held::None), "a", 0), create(&[n])),
        ("5.8", wanted(site(pending(n)), "a", 0), wait(120)),
        ("5.8, created a moment ago", wanted(site(Held::Created), "a", 0), wait(120)),
        ("5.9: the writer takes it out", reported(wanted(site(pending(n)), "a", 0)), wait(120)),
        ("5.11: the writer reports it", wanted(site(live(n)), "a", 0), wait(120)),
        ("5.12", reported(wanted(site(live(n)), "a", 0)), Next::Done),
        ("5.14 and D16: the writer takes it out", reported(wanted(site(deleting(n)), "a", 0)), wait(120)),
        ("5.15", wanted(site(deleting(n)), "a", 0), wait(120)),
        ("5.17", Site { is_managed: false, ..wanted(site(Held::None), "a", 0) }, Next::Done),
        ("5.17, frozen (D21)", Site { is_managed: false, ..site(live(n)) }, Next::Done),
        ("5.18", on(Standing::Missing { was_free: true }, wanted(site(Held::None), "a", 0)), Next::Done),
        (
            "5.18, wanted and live",
            on(Standing::Missing { was_free: true }, wanted(site(pending(n)), "a", 0)),
            wait(120),
        ),
        ("5.18, unwanted (D33)", on(Standing::Missing { was_free: true }, site(live(n))), withdraw(n)),
        ("7: asked", withdrawn(lasting(reported(site(live(n))), LONG), Withdrawal::Asked), Next::Done),
        (
            "7: asked, and out, but not confirmed",
            withdrawn(lasting(site(live(n)), LONG), Withdrawal::Asked),
            Next::Done,
        ),
        ("7d", confirmed(site(live(n))), delete(n, None)),
        ("7d, but reported again", confirmed(reported(site(live(n)))), Next::Done),
        ("7b and D8: the live node uses it", confirmed(on(BUSY, site(live(n)))), restore(n)),
        ("7c", confirmed(wanted(site(live(n)), "a", 0)), restore(n)),
        ("7.2 and D7", confirmed(on(TAINTED, site(live(n)))), delete(n, Some(Force::OutOfService))),
        ("7.6 and D5", confirmed(on(LOST, site(live(n)))), delete(n, Some(Force::Timeout))),
        ("7.3 and D2", on(BUSY, reported(site(live(n)))), Next::Done),
        ("7.4", on(LOST, reported(site(live(n)))), Next::Do(Step::Wait(Duration::from_millis(360_001)))),
        (
            "7e",
            Site { memory: SiteMemory { is_deleted: true, ..lasting(site(live(n)), LONG).memory }, ..site(live(n)) },
            Next::Done,
        ),
    ] {
        let view = view(vec![(n, site)]);
        let found = step(&view);
        // The last row is another phase, which is noted first.
        let found = if let Next::Do(Step::Track(_)) = found { Next::Done } else { found };
        assert_eq!(found, expected, "{row}");
    }
}

#[test]
fn case_5_10_and_13_3_a_pod_reads_each_error_once_and_that_nobody_answers() {
    let error = |time: &str, message: &str| {
        Held::Fits(attachment(
            "n",
            &json!({ "attached": false, "attachError": { "time": time, "message": message } }),
            false,
        ))
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z");
    let failing = view(vec![("n", wanted(wanted(site(error(early, "no room")), "a", 0), "b", 1))]);
    let text = "AttachVolume.Attach failed for volume \"pv\" : no room".to_owned();
    assert_eq!(told(&failing), [("a".to_owned(), text.clone()), ("b".to_owned(), text)]);
    let Next::Do(Step::Tell(news)) = step(&failing) else { panic!("nothing is told") };
    let known = |held: Held| {
        let mut site = lasting(wanted(wanted(site(held), "a", 0), "b", 1), Duration::ZERO);
        site.memory.told = Some(news[0].key.clone());
        view(vec![("n", site)])
    };
    assert_eq!(step(&known(error(early, "no room"))), Next::Done);
    assert_eq!(told(&known(error(late, "no room"))).len(), 2, "another time");
    assert_eq!(told(&known(error(early, "denied"))).len(), 2, "another text");
    let silent = view(vec![("n", lasting(wanted(site(pending("n")), "a", 0), Duration::from_secs(120)))]);
    let text = "AttachVolume.Attach failed for volume \"pv\" : timed out waiting for external-attacher of demo CSI driver to \
                attach volume v";
    assert_eq!(told(&silent), [("a".to_owned(), text.to_owned())]);
    let Next::Do(Step::Tell(news)) = step(&silent) else { panic!("nothing is told") };
    let mut later = silent.clone();
    later.sites.get_mut("n").unwrap().memory.told = Some(news[0].key.clone());
    assert_eq!(step(&later), wait(600));
    later.sites.get_mut("n").unwrap().age = Duration::from_secs(720);
    assert_eq!(told(&later).len(), 1, "again after ten minutes");
}

#[test]
fn case_5_13_a_name_of_another_volume_is_told_once_and_never_deleted() {
    let other = Held::Clash(attachment("n", &json!({ "attached": true }), false));
    let clash = view(vec![("n", wanted(site(other.clone()), "a", 0))]);
    let text =
        "AttachVolume.Attach failed for volume \"pv\" : the name of its VolumeAttachment belongs to another volume";
    assert_eq!(told(&clash), [("a".to_owned(), text.to_owned())]);
    let Next::Do(Step::Tell(news)) = step(&clash) else { panic!("nothing is told") };
    let mut known = clash;
    known.sites.get_mut("n").unwrap().memory.told = Some(news[0].key.clone());
    assert_eq!(step(&known), Next::Done);
    assert_eq!(step(&view(vec![("n", site(other))])), Next::Done, "also if nobody wants it");
}

#[test]
fn case_13_4_a_volume_that_is_not_detached_is_told_after_two_minutes_with_its_error() {
    let failing = json!({ "attached": true, "detachError": { "message": "busy" } });
    let with = |status: Value| {
        view(vec![("n", lasting(site(Held::Fits(attachment("n", &status, true))), Duration::from_secs(120)))])
    };
    assert_eq!(told(&with(failing)), [("n".to_owned(), "busy".to_owned())]);
    let silent = "timed out waiting for external-attacher of demo CSI driver to detach volume v";
    assert_eq!(told(&with(json!({ "attached": true }))), [("n".to_owned(), silent.to_owned())]);
}

#[test]
fn case_5_16_and_d34_the_oldest_pod_gets_an_exclusive_volume_every_time() {
    let free = |name: &str, second| wanted(site(Held::None), name, second);
    assert_eq!(step(&view(vec![("m", free("b", 2)), ("n", free("a", 1))])), create(&["n"]));
    // Of two of one second that with the smaller uid.
    assert_eq!(step(&view(vec![("m", free("b", 1)), ("n", free("a", 1))])), create(&["n"]));
    // A node that cannot have it is not waited for.
    let gone = on(Standing::Missing { was_free: true }, free("a", 1));
    assert_eq!(step(&view(vec![("m", free("b", 2)), ("n", gone)])), create(&["m"]));
    // After the first is made, the other reads who has it.
    let made = view(vec![("m", free("b", 2)), ("n", wanted(site(Held::Created), "a", 1))]);
    let text = "Multi-Attach error for volume \"pv\" Volume is already used by pod(s) a";
    assert_eq!(told(&made), [("b".to_owned(), text.to_owned())]);
}

#[test]
fn section_6_and_d3_an_exclusive_volume_waits_for_each_other_node_and_others_do_not() {
    let waits = || wanted(site(Held::None), "b", 2);
    let confirmed = |mut view: View| {
        view.rules.multi_attach = MultiAttach::Confirmed;
        view
    };
    let ended = "Waiting for detach for volume \"pv\" Volume is already exclusively attached to one node, waiting on detach before \
                 it can be attached to another node";
    for (row, other, is_closed, is_closed_as_theirs) in [
        ("6.3", reported(wanted(site(live("n")), "a", 1)), true, true),
        ("6.4", wanted(site(pending("n")), "a", 1), true, false),
        ("6.4, deleting", site(deleting("n")), true, false),
    ] {
        let of = |view: View| told(&view).iter().any(|(pod, _)| pod == "b");
        assert_eq!(of(view(vec![("m", waits()), ("n", other.clone())])), is_closed, "{row}");
        assert_eq!(of(confirmed(view(vec![("m", waits()), ("n", other.clone())]))), is_closed_as_theirs, "{row}");
        assert_eq!(step(&shared(view(vec![("m", waits()), ("n", other)]))), create(&["m"]), "6.1");
    }
    assert_eq!(step(&view(vec![("m", waits())])), create(&["m"]), "6.2");
    let foreign = View { has_foreign: true, ..view(vec![("m", waits())]) };
    assert!(told(&foreign)[0].1.starts_with("Multi-Attach error"), "6.6");
    assert!(told(&confirmed(foreign))[0].1.starts_with("Multi-Attach error"), "6.6");
    // D18: what goes away reads differently.
    assert_eq!(told(&view(vec![("m", waits()), ("n", site(deleting("n")))]))[0].1, ended);
}

#[test]
fn d18_other_holders_are_told_anew_and_the_same_after_five_minutes() {
    let waits = |told: Option<String>, age| {
        let mut site = lasting(wanted(site(Held::None), "b", 2), age);
        site.memory.told = told;
        site
    };
    let held = |pods: &[&str]| pods.iter().fold(reported(site(live("n"))), |site, pod| wanted(site, pod, 1));
    let first = view(vec![("m", waits(None, Duration::ZERO)), ("n", held(&["a"]))]);
    let Next::Do(Step::Tell(news)) = step(&first) else { panic!("nothing is told") };
    let key = || Some(news[0].key.clone());
    assert_eq!(step(&view(vec![("m", waits(key(), Duration::from_secs(10))), ("n", held(&["a"]))])), wait(290));
    assert_eq!(told(&view(vec![("m", waits(key(), Duration::from_secs(10))), ("n", held(&["a", "c"]))])).len(), 1);
    assert_eq!(told(&view(vec![("m", waits(key(), Duration::from_secs(300))), ("n", held(&["a"]))])).len(), 1);
}

#[test]
fn d4_and_all_detaches_come_before_attaches_and_shared_volumes_go_side_by_side() {
    let three = vec![
        ("k", wanted(site(Held::None), "a", 1)),
        ("m", wanted(site(Held::None), "b", 2)),
        ("n", reported(wanted(wanted(site(live("n")), "c", 3), "d", 4))),
    ];
    assert_eq!(step(&shared(view(three))), create(&["k", "m"]), "n stays for both of its pods");
    let mixed = vec![("m", wanted(site(Held::None), "b", 2)), ("n", reported(site(live("n"))))];
    assert_eq!(step(&shared(view(mixed))), withdraw("n"));
}

#[test]
fn section_11_and_19_nothing_is_written_too_early_or_beside_another_controller() {
    let attaching = || view(vec![("n", wanted(site(Held::None), "a", 0))]);
    assert_eq!(step(&View { permit: Permit::No, ..attaching() }), Next::Done);
    assert_eq!(step(&View { permit: Permit::After(Duration::from_secs(9)), ..attaching() }), wait(9));
    let settling = |sites| View { until_detach: Duration::from_secs(7), ..view(sites) };
    assert_eq!(step(&settling(vec![("n", reported(site(live("n"))))])), wait(7));
    assert_eq!(step(&settling(vec![("n", wanted(site(Held::None), "a", 0))])), create(&["n"]), "attaches may begin");
}

#[test]
fn how_far_a_volume_is_is_noted_before_anything_is_done() {
    let fresh = |sites: Vec<(&str, Site)>| {
        let mut view = view(sites);
        view.sites.values_mut().for_each(|site| site.memory = SiteMemory::default());
        view
    };
    let phases = |phase| {
        let uid = if phase == Phase::Blocked { "" } else { "va-n" };
        let found = Found { uid: uid.into(), phase, is_reported: false };
        Next::Do(Step::Track(BTreeMap::from([("n".to_owned(), found)])))
    };
    for (attachment, is_wanted, phase) in [
        (Held::None, true, Phase::Blocked),
        (pending("n"), true, Phase::Attaching),
        (live("n"), true, Phase::Attaching),
        (live("n"), false, Phase::Unwanted),
        (deleting("n"), true, Phase::Deleting),
    ] {
        let held = site(attachment);
        assert_eq!(step(&fresh(vec![("n", if is_wanted { wanted(held, "a", 0) } else { held })])), phases(phase));
    }
    // Without a status of the node, what is attached is settled.
    let unwritten = Site { is_written: false, ..wanted(site(live("n")), "a", 0) };
    assert_eq!(step(&fresh(vec![("n", unwritten)])), phases(Phase::Settled));
    let mut gone = view(vec![]);
    gone.remembered.insert("n".to_owned());
    assert_eq!(step(&gone), Next::Do(Step::Track(BTreeMap::new())));
}

#[test]
fn d13_a_refused_deletion_is_asked_for_again_after_a_while() {
    let free = |until_retry| Site { until_retry, ..lasting(reported(site(live("n"))), LONG) };
    assert_eq!(step(&view(vec![("n", free(Duration::ZERO))])), withdraw("n"));
    assert_eq!(step(&view(vec![("n", free(LONG))])), Next::Do(Step::Wait(LONG)));
}

#[test]
fn d13_after_a_failed_deletion_the_name_is_put_back_if_the_attachment_is_live() {
    use super::super::view::AttemptFailure;
    use crate::roles::kit::AttemptError;
    let failure = || AttemptFailure(AttemptError::Endless(1));
    let view = view(vec![("n", withdrawn(lasting(site(live("n")), LONG), Withdrawal::Confirmed))]);
    let failed = |is_live, is_restored| {
        let failed = Some(("n".to_owned(), failure()));
        next_step(&view, &Progress { failed, is_live, is_restored, ..Progress::default() })
    };
    assert_eq!(failed(None, false), Next::Do(Step::ReadAgain("n".to_owned())));
    assert_eq!(failed(Some(true), false), restore("n"));
    assert_eq!(failed(Some(true), true), Next::Do(Step::Fail(failure())));
    assert_eq!(failed(Some(false), false), Next::Do(Step::Fail(failure())), "it is gone after all, or going");
}

#[test]
fn d26_what_the_api_may_still_delete_is_written_before_its_name_is_put_back() {
    use super::super::view::AttemptFailure;
    use crate::roles::kit::AttemptError;
    let unsure = |site: Site| {
        let mut site = withdrawn(lasting(site, LONG), Withdrawal::Confirmed);
        site.memory.is_kept = false;
        site
    };
    let of = |site: Site| view(vec![("n", site)]);
    let keep = Next::Together(vec![Step::Keep("n".to_owned())]);
    let failure = || AttemptFailure(AttemptError::Endless(1));
    let failed = Progress { failed: Some(("n".to_owned(), failure())), ..Progress::default() };
    let unwanted = || unsure(site(live("n")));
    assert_eq!(next_step(&of(unwanted()), &failed), Next::Do(Step::Fail(failure())), "nothing is put back");
    assert_eq!(step(&of(unwanted())), delete("n", None));
    assert_eq!(step(&of(Site { until_retry: LONG, ..unwanted() })), Next::Do(Step::Wait(LONG)));
    let again = || unsure(wanted(site(live("n")), "web", 1));
    assert_eq!(step(&of(again())), keep);
    let kept = Progress { kept: vec!["n".to_owned()], ..Progress::default() };
    assert_eq!(next_step(&of(again()), &kept), restore("n"), "the writer of the status is woken");
    // An earlier leader may have asked for it.
    let mut taken_over = lasting(wanted(site(live("n")), "web", 1), LONG);
    taken_over.memory.is_kept = false;
    assert_eq!(step(&of(taken_over.clone())), keep);
    assert_eq!(step(&of(lasting(reported(taken_over), LONG))), Next::Done, "then its name would be out");
    // By force, and then the node is back.
    let used = Standing::There { in_use: true, out_of_service: false, is_ready: true };
    assert_eq!(step(&of(on(used, unwanted()))), keep);
    assert_eq!(step(&of(unsure(wanted(site(pending("n")), "web", 1)))), restore("n"), "nothing is reported yet");
}
