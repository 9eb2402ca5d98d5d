//! Updates without scrolling, a daemon that stops and comes back, a browser without script.

use serde_json::{Value, json};

use crate::page::browser::{Browser, PHONE};
use crate::page::scene::{Scene, failing, item};

/// When the daemon sent what the page shows.
const TOLD: &str = "document.querySelector('.when').innerText";
const PLACE: &str = "Math.round(scrollY)";

/// Puts the page's own clock into our hand as well: `tick()` is one period of it.
const CLOCK: &str = "{
  const [real, all] = [window.setInterval.bind(window), []];
  window.setInterval = (tick, period) => { all.push(tick); return real(tick, period); };
  window.tick = () => Promise.all(all.map((tick) => tick())).then((ticked) => ticked.length);
}";

async fn opened(scene: &Scene) -> Browser {
    let mut browser = Browser::start().await;
    browser.look_on(PHONE, "light").await;
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": CLOCK})).await;
    browser.open(&scene.url()).await;
    browser
}

/// Waits until the page has newer data.
async fn news(browser: &mut Browser) {
    let told = browser.tell(TOLD).await;
    browser.until("news", &format!("{TOLD} !== {told}")).await;
}

#[tokio::test]
async fn news_come_without_a_jump_and_leave_what_is_typed_and_selected() {
    let scene = Scene::busy().await;
    let mut browser = opened(&scene).await;
    browser.tell("scrollTo(0, 600); window.mark = 1; document.querySelector('input').value = 'zone'").await;
    browser.tell("document.querySelector('input').focus({preventScroll: true})").await;
    let place = browser.tell(PLACE).await;
    assert_eq!(place, 600);
    let failed = failing(item("claims", "ci/new", Some("ci/new: class fast"), 2000.0), 9, 3.0, "no more room");
    scene.work.lock().unwrap().push(failed);
    browser.until("the new failure", "document.body.innerText.includes('ci/new')").await;
    assert_eq!(browser.tell(PLACE).await, place);
    let kept =
        browser.tell("[window.mark, document.querySelector('input').value, document.activeElement.tagName]").await;
    assert_eq!(kept, json!([1, "zone", "INPUT"]), "the page was not loaded again");

    // A refresh does not disturb a user who copies an error.
    browser.tell("getSelection().selectAllChildren(document.querySelector('.error bdi'))").await;
    // The answer to an earlier request may still come. The page does not show it.
    let (told, asked) = (browser.tell(TOLD).await, browser.events("Network.requestWillBeSent").len());
    scene.work.lock().unwrap().clear();
    for _period in 0..2 {
        assert_eq!(browser.tell("tick()").await, 1, "the page has one clock");
    }
    assert_eq!(browser.tell(TOLD).await, told);
    assert_eq!(browser.events("Network.requestWillBeSent").len(), asked);
    browser.tell("getSelection().removeAllRanges()").await;
    browser.until("news again", "document.body.innerText.includes('No work')").await;
    assert_eq!(browser.complaints(&scene.url()), Vec::<String>::new());
}

#[tokio::test]
async fn a_page_whose_daemon_is_gone_says_so_and_comes_back_with_it() {
    let mut scene = Scene::busy().await;
    let mut browser = opened(&scene).await;
    let stale = "!document.getElementById('stale').hidden && document.getElementById('stale').innerText";
    assert_eq!(browser.tell(stale).await, Value::Bool(false));
    scene.go_away();
    browser.until("it says that it is old", &format!("({stale} || '').startsWith('No answer since')")).await;
    assert!(browser.tell("document.body.innerText").await.as_str().unwrap().contains("db/data-postgres-2"));
    scene.come_back().await;
    browser.until("it is new again", "document.getElementById('stale').hidden").await;
}

#[tokio::test]
async fn without_script_the_page_loads_itself_again_and_stays_where_it_was() {
    let scene = Scene::busy().await;
    let mut browser = Browser::start().await;
    browser.look_on(PHONE, "light").await;
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    browser.open(&scene.url()).await;
    browser.tell("scrollTo(0, 600)").await;
    browser.event("Page.loadEventFired").await;
    browser.until("the place is kept", &format!("{PLACE} === 600")).await;
    assert!(browser.events("Page.frameNavigated").len() >= 2, "it was loaded again");
}

#[tokio::test]
async fn what_is_looked_for_is_found_and_stays_looked_for() {
    let scene = Scene::busy().await;
    let mut browser = opened(&scene).await;
    browser.tell("document.querySelector('input').value = 'eu-west-1c'").await;
    browser.tell("document.querySelector('.find button').click()").await;
    browser.until("the answer", "location.search === '?find=eu-west-1c' && document.readyState === 'complete'").await;
    let text = browser.tell("document.getElementById('parts').innerText").await;
    let text = text.as_str().unwrap();
    assert!(text.contains("db/data-postgres-2") && !text.contains("ci/cache-runner-17"), "{text}");
    assert!(text.contains("zone=eu-west-1c") && !text.contains("zone=eu-west-1a"), "{text}");
    news(&mut browser).await;
    let text = browser.tell("document.getElementById('parts').innerText").await;
    assert!(!text.as_str().unwrap().contains("ci/cache-runner-17"));
    assert_eq!(browser.tell("document.querySelector('input').value").await, "eu-west-1c");
    assert_eq!(browser.complaints(&scene.url()), Vec::<String>::new());
}
