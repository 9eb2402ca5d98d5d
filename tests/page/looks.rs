//! Light and dark, desktop and phone: everything is readable, nothing is cut off, nothing is fetched from elsewhere.

use std::time::Duration;

use serde_json::Value;

use crate::page::browser::{Browser, DESK, PHONE, Screen};
use crate::page::scene::Scene;

/// Texts whose colour is too near to what they stand on, by WCAG 2.2, 1.4.3: less than 4.5, or 3 where they are large.
const TOO_FAINT: &str = r#"(() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a), a: 1,
  });
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility() || element.closest("script,style")) continue;
    seen += 1;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const [a, b] = [light(over(parse(style.color), ground)), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: ${walk.currentNode.data.trim().slice(0, 60)}`);
  }
  return { seen, found };
})()"#;

/// What reaches beyond the right edge of the screen, or is cut off by what it stands in.
const TOO_WIDE: &str = r#"(() => {
  const wide = document.documentElement.clientWidth;
  const beyond = [...document.querySelectorAll("body *")].filter((element) => {
    const box = element.getBoundingClientRect();
    // Column heads are for screen readers on a telephone: each cell tells its own.
    return box.width > 1 && !element.closest("thead") && element.checkVisibility() && (box.right > wide + 0.5 || box.left < -0.5);
  });
  const cut = [...document.querySelectorAll("section,td,li,p,h1,h2,dd,.scroll")]
    .filter((element) => element.checkVisibility() && !element.closest("thead") && element.scrollWidth > element.clientWidth + 1);
  const name = (element) => `${element.tagName}.${element.className}: ${element.textContent.slice(0, 60)}`;
  return {
    page: document.documentElement.scrollWidth - wide,
    beyond: beyond.map(name), cut: cut.filter((element) => getComputedStyle(element).display !== "inline").map(name),
  };
})()"#;

/// Links, buttons and fields that a thumb would miss: WCAG 2.2, 2.5.8.
const TOO_SMALL: &str = r#"[...document.querySelectorAll("a,button,input")].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width < 24 || box.height < 24;
}).map((element) => element.outerHTML)"#;

fn nothing() -> Value {
    Value::Array(Vec::new())
}

async fn is_readable(browser: &mut Browser, scene: &Scene, screen: Screen, scheme: &str) {
    let what = format!("{scheme}, {} wide", screen.width);
    browser.look_on(screen, scheme).await;
    browser.open(&scene.url()).await;
    let scheme_seen = browser.tell(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches")).await;
    assert_eq!(scheme_seen, Value::Bool(true), "{what}");
    let faint = browser.tell(TOO_FAINT).await;
    assert!(faint["seen"].as_u64().unwrap() > 10, "{what}: {faint}");
    assert_eq!(faint["found"], nothing(), "{what}: too faint");
    let wide = browser.tell(TOO_WIDE).await;
    assert_eq!(wide["page"], 0, "{what}: scrolls to the side");
    assert_eq!((&wide["beyond"], &wide["cut"]), (&nothing(), &nothing()), "{what}: cut off");
    assert_eq!(browser.tell(TOO_SMALL).await, nothing(), "{what}: too small to hit");
    assert_eq!(browser.complaints(&scene.url()), Vec::<String>::new(), "{what}");
}

#[tokio::test]
async fn everything_is_readable_by_day_and_by_night_at_a_desk_and_on_a_telephone() {
    let (scene, mut browser) = (Scene::busy().await, Browser::start().await);
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        for screen in [DESK, PHONE] {
            is_readable(&mut browser, &scene, screen, scheme).await;
        }
        grounds.push(browser.tell("getComputedStyle(document.body).backgroundColor").await);
    }
    assert_ne!(grounds[0], grounds[1], "night is not day");
}

#[tokio::test]
async fn a_daemon_that_has_only_begun_has_a_readable_page_too() {
    let (scene, mut browser) = (Scene::empty().await, Browser::start().await);
    for (screen, scheme) in [(DESK, "light"), (PHONE, "dark")] {
        is_readable(&mut browser, &scene, screen, scheme).await;
    }
}

#[tokio::test]
async fn what_fails_is_seen_before_anything_else_is() {
    let (scene, mut browser) = (Scene::busy().await, Browser::start().await);
    browser.look_on(DESK, "light").await;
    browser.open(&scene.url()).await;
    let first = browser.tell("document.querySelector('#parts tbody').innerText").await;
    let first = first.as_str().unwrap();
    for text in ["db/data-postgres-2", "backing off", "12m24s", "10", "in 2m18s", "ResourceExhausted"] {
        assert!(first.contains(text), "{text:?} in {first:?}");
    }
    let place =
        browser.tell("document.querySelector('#parts tbody').getBoundingClientRect().bottom < innerHeight").await;
    assert_eq!(place, Value::Bool(true), "without scrolling");
    // Of the capacity, the segment that nothing is known about.
    let rows = "[...document.querySelectorAll('section')].find((it) => it.innerText.startsWith('Capacity by segment'))";
    let room = browser.tell(&format!("{rows}.querySelector('tbody').innerText")).await;
    assert!(room.as_str().unwrap().contains("did not answer"), "{room}");
}

#[tokio::test]
async fn the_picture_is_of_a_daemon_that_could_be() {
    let report = Scene::busy().await.report();
    let uptime = report.uptime;
    let of_roles = report.roles.iter().filter_map(|role| role.term_age);
    let of_driver = report.driver.iter().map(|driver| driver.since);
    let of_configuration = report.configuration.iter().map(|configuration| configuration.since);
    let ages: Vec<_> = of_roles.chain(of_driver).chain(of_configuration).collect();
    assert_eq!(ages.len(), 5);
    for age in ages.into_iter().chain(report.work.iter().map(|item| item.age)) {
        assert!(age <= uptime, "{age} is older than the daemon, {uptime}");
    }
    // The back-off doubles from one second to five minutes, or to half a minute where a Secret is missing, and is up to a fifth longer:
    // so many failures take so long, and no item waits longer.
    for item in report.work.iter().filter(|item| item.attempts > 0) {
        let longest = if item.last_error.as_deref().unwrap_or_default().contains("secret") { 30 } else { 300 };
        let delay = |failures: u32| Duration::from_secs(2_u64.pow(failures - 1).min(longest));
        let waited: Duration = (1..item.attempts).map(delay).sum();
        let next = item.next_try.unwrap().0;
        assert!(item.age.0 >= waited && next <= delay(item.attempts) * 6 / 5, "{item:?}");
        let due = waited + delay(item.attempts);
        assert!(item.age.0 + next >= due, "{item:?} was tried too early");
        assert!(item.age.0 + next <= due * 6 / 5, "{item:?} was not tried when it was due");
        assert!(!item.subject.as_deref().unwrap_or_default().contains("not "), "{item:?}");
    }
    let states = report.work_states;
    let sum = states.running + states.waiting + states.backing_off + states.delayed;
    assert_eq!((sum, report.work_total), (7, 7), "the tiles add up");
}
