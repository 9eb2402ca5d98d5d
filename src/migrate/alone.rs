//! The workload alone, out of a file with other objects. Only the workload is written and replaced: the other objects
//! may have changed in the cluster since the file was written. Pure.

use super::document::{Document, Workload};
use super::outline::{self, Outline, Step};

/// The text of the workload, and whether its lines are as they were written.
pub(super) fn text(text: &str, documents: &[Document], workload: &Workload) -> Option<(String, bool)> {
    let document = documents.get(workload.document)?;
    let all: Vec<&str> = text.lines().collect();
    let lines = all.get(document.lines.clone())?;
    let (kept, value) = match workload.item {
        Some(item) => (of_item(lines, item), document.value.get("items")?.get(item)?),
        None => (Some(lines.iter().map(|&line| line.to_owned()).collect()), &document.value),
    };
    let (lines, is_kept) = outline::meaning(value, kept);
    Some((lines.join("\n") + "\n", is_kept))
}

/// The lines of an item of a list, moved to the left; `None` where the text can't be followed.
fn of_item(lines: &[&str], item: usize) -> Option<Vec<String>> {
    let outline = Outline::of(lines.iter().copied());
    let items = outline.items(&outline.find(&[Step::Key("items")])?)?;
    let lines = lines.get(items.ranges.get(item)?.clone())?;
    let dash = lines.iter().position(|line| line.get(items.column..).is_some_and(|rest| rest.starts_with("- ")))?;
    let moved = lines.iter().enumerate().map(|(at, line)| {
        let width = if at < dash { items.column } else { items.column + 2 };
        line.get(width..).unwrap_or_default().to_owned()
    });
    Some(moved.collect())
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::*;

    fn alone(manifest: &str) -> (String, bool) {
        let documents = document::read(manifest).unwrap();
        let workload = document::workloads(&documents).remove(0);
        text(manifest, &documents, &workload).unwrap()
    }

    const BODY: &str = "kind: Deployment\nmetadata: {name: d} # ours\nspec:\n  template:\n    spec:\n      containers:\n      \
                        - name: c\n";

    #[test]
    fn other_documents_are_left_out() {
        let manifest = format!("kind: Secret\n---\n{BODY}---\nkind: ConfigMap\n");
        assert_eq!(alone(&manifest), (BODY.to_owned(), true));
    }

    #[test]
    fn an_item_of_a_list_becomes_a_document() {
        let item = BODY.lines().enumerate().map(|(at, line)| format!("{}{line}\n", if at == 0 { "- " } else { "  " }));
        let manifest = format!("kind: List\nitems:\n- kind: Secret\n{}", item.collect::<String>());
        assert_eq!(alone(&manifest), (BODY.to_owned(), true));
        let flow = "{kind: List, items: [{kind: Deployment, metadata: {name: d}, spec: {template: {spec: {containers: []}}}}]}";
        assert!(!alone(flow).1);
    }
}
