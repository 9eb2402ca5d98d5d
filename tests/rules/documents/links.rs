//! Links of documents: a relative one names a file that exists, and its anchor one of that file's headings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{files, root, shown};

/// The text without what is shown as it is: code between fences and between backticks.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line);
        }
    }
    // Every second piece between backticks is code.
    let text = lines.join("\n");
    text.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// The targets of links and pictures.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let mut targets = Vec::new();
    for (begin, end) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
        for piece in prose.split(begin).skip(1) {
            targets.extend(piece.split(end).next().map(|target| target.trim().to_owned()));
        }
    }
    targets
}

/// The anchors that a forge gives to the headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug = slug(title.trim());
        let count = counts.entry(slug.clone()).or_default();
        anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    anchors
}

/// Lower case, dashes for spaces, no punctuation; of a link its text alone.
fn slug(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// The faults of the links in a text at a path.
fn faults(path: &Path, text: &str) -> Vec<String> {
    let is_relative = |target: &String| !(target.contains("://") || target.starts_with("mailto:"));
    targets(text).into_iter().filter(is_relative).filter_map(|target| fault(path, text, &target)).collect()
}

fn fault(path: &Path, text: &str, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = if file.is_empty() { path.to_path_buf() } else { path.parent()?.join(file) };
    if !to.exists() {
        return Some(format!("{}: there is no file {target:?}", shown(path)));
    }
    if anchor.is_empty() {
        return None;
    }
    let there = if file.is_empty() { text.to_owned() } else { std::fs::read_to_string(&to).unwrap_or_default() };
    (!anchors(&there).contains(anchor)).then(|| format!("{}: there is no heading {target:?}", shown(path)))
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let documents = files(&["md"]);
    assert!(documents.len() > 25, "{documents:?}");
    let mut count = 0;
    let mut wrong = Vec::new();
    for path in documents {
        let text = std::fs::read_to_string(&path).unwrap();
        count += targets(&text).len();
        wrong.extend(faults(&path, &text));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 150, "{count} links");
}

#[test]
fn a_link_that_leads_nowhere_is_noticed() {
    let text = "# One [two](three.md), `four_five`\n[a](docs/nothing.md) [b](docs/faq.md#nothing) [c](#one-two-four_five)\n\
                [d](#nothing) [e\nf](LICENSE) `[g](nothing)` [h](https://example.com/nothing)\n```\n[i](nothing)\n```\n\
                <img src=\"docs/images/nothing.svg\">\n";
    let path = root().join("README.md");
    let wrong = faults(&path, text);
    let names = ["three.md", "docs/nothing.md", "docs/faq.md#nothing", "#nothing", "docs/images/nothing.svg"];
    assert_eq!(wrong.len(), names.len(), "{wrong:#?}");
    for name in names {
        assert!(wrong.iter().any(|fault| fault.contains(&format!("{name:?}"))), "{name}: {wrong:#?}");
    }
    assert!(anchors("# A\n## A\n").contains("a-1"));
}
