//! What a migration results in: a report, and the files to apply.

use super::report::Report;

/// The result of a migration.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What was found.
    pub report: Report,
    /// The files to apply; none if there are faults.
    pub files: Option<Files>,
}

impl Outcome {
    /// The faults for a terminal, below the most important news: whether there are files at all.
    pub fn faults_text(&self) -> String {
        let faults = self.report.faults_text();
        match &self.files {
            // What was left out is a note.
            Some(_) => String::new(),
            None if faults.is_empty() => "nothing was written\n".to_owned(),
            None => format!("nothing was written: {faults}"),
        }
    }
}

/// The files of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The configuration file alone, for `check`.
    pub config: String,
    /// The ConfigMap that holds it.
    pub config_map: String,
    /// The rights, as `check` prints them, but for secrets that were named.
    pub rbac: String,
    /// Those rights, given to the workload's service account.
    pub bindings: String,
    /// The workload, patched, without the other objects of the manifest.
    pub workload: String,
    /// The workload as it was, for the way back.
    pub original: String,
}

impl Files {
    /// Each with its name.
    pub fn named(&self) -> [(&'static str, &str); 6] {
        [
            ("config.yaml", &self.config),
            ("configmap.yaml", &self.config_map),
            ("rbac.yaml", &self.rbac),
            ("bindings.yaml", &self.bindings),
            ("workload.yaml", &self.workload),
            ("original.yaml", &self.original),
        ]
    }

    /// All that is applied, as one stream of documents.
    pub fn stream(&self) -> String {
        let mut stream = String::new();
        for text in [&self.config_map, &self.rbac, &self.bindings, &self.workload] {
            if !text.starts_with("---") && !text.is_empty() {
                stream.push_str("---\n");
            }
            stream.push_str(text);
        }
        stream
    }
}
