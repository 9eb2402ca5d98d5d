//! The tables of `/status.json`: docs/status.md names each with its columns, and no other.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::citations::files_below;

#[test]
fn every_table_of_the_status_is_documented_with_its_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut shown = BTreeMap::new();
    for path in
        files_below(&root.join("src"), &["rs"]).iter().filter(|path| !path.to_string_lossy().ends_with("tests.rs"))
    {
        let text = fs::read_to_string(path).unwrap();
        for literal in text.split(": Table = ").skip(1).map(|rest| rest.split("};").next().unwrap()) {
            // Its name, its title, and those of each column.
            let words: Vec<&str> = literal.split('"').skip(1).step_by(2).collect();
            let name = words[0].to_owned();
            let columns: Vec<String> = words[2..].iter().step_by(2).map(|&word| word.to_owned()).collect();
            assert!(shown.insert(name.clone(), columns).is_none(), "two tables have the name {name}");
        }
    }
    assert!(shown.len() >= 9, "{shown:?}");
    let document = fs::read_to_string(root.join("docs/status.md")).unwrap();
    let rows = document.split_once("## Tables").unwrap().1.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeMap<String, Vec<String>> = rows
        .map(|row| {
            let (name, rest) = row.split_once('`').unwrap();
            let columns = rest.rsplit_once(" | ").unwrap().1.split('`').skip(1).step_by(2).map(str::to_owned);
            (name.to_owned(), columns.collect())
        })
        .collect();
    assert_eq!(told, shown, "docs/status.md, and what the roles show");
}
