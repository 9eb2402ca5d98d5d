//! How old the README's figures are: each row of its table names the day of its binary, benches/compare/results/results.json the commit.
//!
//! A checkout without its history (a vendored archive, a shallow clone) cannot say how old a commit is: there only the form of the
//! commits is tested. The gate's workflow fetches the history, which is tested here, too.

use std::path::Path;
use std::process::Command;

use crate::report::Document;
use crate::report::front::{TOO_OLD, rows};

/// A figure of a binary before so many commits of `src` says little of today's.
const MOST_COMMITS: usize = 300;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What git says of a folder; `Err`: why it says nothing.
fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new("git").arg("-C").arg(folder).args(arguments).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a folder is the root of a checkout that has its whole history.
fn has_history(folder: &Path) -> bool {
    let is_its_root = |top: String| Path::new(&top).canonicalize().ok() == folder.canonicalize().ok();
    git(folder, &["rev-parse", "--show-toplevel"]).is_ok_and(is_its_root)
        && git(folder, &["rev-parse", "--is-shallow-repository"]).as_deref() == Ok("false")
}

/// How many commits of `src` and `crates` came after one; where the history was written anew and lacks it, after its day.
fn age(folder: &Path, commit: &str, day: &str) -> usize {
    let is_there = git(folder, &["merge-base", "--is-ancestor", commit, "HEAD"]).is_ok();
    let after = if is_there { format!("{commit}..HEAD") } else { format!("--since={day} +0000") };
    let count = git(folder, &["rev-list", "--count", &after, "HEAD", "--", "src", "crates"]).unwrap();
    count.parse().unwrap()
}

#[test]
fn no_figure_of_the_readme_is_of_a_binary_that_is_too_old() {
    let document = Document::read(&root().join("benches/compare/results"));
    let mut old = Vec::new();
    for row in rows(&document) {
        let row = row.unwrap_or_else(|what| panic!("{what} was not measured"));
        let commit = document.occasions[row.occasion].commit.as_str();
        let is_whole = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_whole, "{}: results.json has {commit:?} as the commit of the occasion {}", row.what, row.occasion);
        if has_history(root()) && age(root(), commit, row.occasion) > MOST_COMMITS {
            old.push(row.what);
        }
    }
    if has_history(root()) {
        assert_eq!(
            old, TOO_OLD,
            "README.md has these figures of a binary before {MOST_COMMITS} commits of src: measure them again (`just compare --add`), or \
             mark them in TOO_OLD of benches/compare/report/front.rs; those that were measured again lose their mark"
        );
    }
}

#[test]
fn the_workflow_of_the_gate_fetches_the_history_that_the_ages_need() {
    let workflow = std::fs::read_to_string(root().join(".github/workflows/ci.yaml")).unwrap();
    let gate = workflow.split("\n  gate:\n").nth(1).expect("ci.yaml has a job `gate`");
    let gate = gate.split("\n  # ").next().unwrap();
    assert!(gate.contains("fetch-depth: 0"), "a shallow checkout counts no commits");
    assert!(gate.contains(".ci/run"));
}

#[test]
fn the_age_is_the_number_of_later_commits_of_the_sources_and_a_shallow_clone_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let play = |arguments: &[&str]| {
        let own = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"];
        git(folder.path(), &[&own, arguments].concat()).unwrap()
    };
    assert!(!has_history(folder.path()), "no checkout");
    play(&["init", "--quiet"]);
    std::fs::create_dir(folder.path().join("src")).unwrap();
    for (file, text) in [("src/a.rs", "1"), ("src/a.rs", "2"), ("README.md", "3"), ("src/b.rs", "4")] {
        std::fs::write(folder.path().join(file), text).unwrap();
        play(&["add", "--all"]);
        play(&["commit", "--quiet", "--message", text]);
    }
    assert!(has_history(folder.path()));
    assert!(!has_history(&folder.path().join("src")), "not its root");
    let first = play(&["rev-list", "--max-parents=0", "HEAD"]);
    assert_eq!(age(folder.path(), &first, "2020-01-01 00:00:00"), 2, "README.md is no source");
    assert_eq!(age(folder.path(), "HEAD", "2020-01-01 00:00:00"), 0);
    let unknown = "1".repeat(40);
    assert_eq!(age(folder.path(), &unknown, "2020-01-01 00:00:00"), 3, "by its day");
    assert_eq!(age(folder.path(), &unknown, "2099-01-01 00:00:00"), 0);

    let shallow = tempfile::tempdir().unwrap();
    let from = format!("file://{}", folder.path().display());
    git(shallow.path(), &["clone", "--quiet", "--depth", "1", &from, "."]).unwrap();
    assert!(!has_history(shallow.path()));
}
