//! No role imports another role, and no file outside `src/roles` names a role: the other folders use its
//! `Registration`.

use std::collections::BTreeSet;

use csi_control_plane::roles::ROLES;
use csi_control_plane::roles::sidecars::{UNHOSTED, hosted};

use super::{code, files, imports, is_test_file, rust_files, source, without_tests};

#[test]
fn no_role_imports_another() {
    let mut faults = Vec::new();
    for path in rust_files(&source().join("roles")).iter().filter(|path| !is_test_file(path)) {
        let relative = path.strip_prefix(source()).unwrap();
        let Some(own) = relative.parent().and_then(|parent| parent.iter().nth(1)) else { continue };
        let own = own.to_str().unwrap();
        for import in imports(relative, &code(path)) {
            if let Some(rest) = import.strip_prefix("roles::") {
                let other = rest.split("::").next().unwrap();
                if other != own && other != "kit" && source().join("roles").join(other).is_dir() {
                    faults.push(format!("{} imports crate::{import}", relative.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Words of the Kubernetes API that are called as a role is, and the files that must name them.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    (
        "cluster/names.rs",
        &["ANNOTATION_STORAGE_PROVISIONER", "ANNOTATION_BETA_STORAGE_PROVISIONER", "ANNOTATION_STORAGE_RESIZER"],
        "claim annotations",
    ),
    ("cluster/names.rs", &["FINALIZER_PROVISIONER"], "the finalizer that Kubernetes' own controllers know, too"),
    ("cluster/meta.rs", &["names::FINALIZER_PROVISIONER"], "the same: its text is kept once"),
    ("cluster/objects/attachment.rs", &["attacher", "self.spec.attacher"], "VolumeAttachment's spec.attacher"),
    ("cluster/objects/class.rs", &["provisioner", "self.provisioner"], "StorageClass's provisioner"),
    (
        "cluster/objects/claim.rs",
        &[
            "provisioner",
            "self.provisioner",
            "names::ANNOTATION_STORAGE_PROVISIONER",
            "names::ANNOTATION_BETA_STORAGE_PROVISIONER",
        ],
        "claim annotations",
    ),
    (
        "translation/class.rs",
        &["class.provisioner", "class.provisioner.clone", "new.provisioner", "provisioner"],
        "StorageClass's provisioner, and the parameter that names its Secret",
    ),
    ("migrate/container.rs", &["livenessProbe"], "a container's field"),
    ("migrate/document.rs", &["provisioner"], "StorageClass's provisioner"),
    ("migrate/found.rs", &["livenessProbe"], "a container's field"),
    ("migrate/taken.rs", &["livenessProbe"], "a container's field"),
    ("sandbox/actors/attachments.rs", &["attacher"], "VolumeAttachment's spec.attacher"),
    (
        "sandbox/actors/binder.rs",
        &["PROVISIONERS", "NO_PROVISIONER", "PROVISIONERS.iter", "name_provisioner", "provisioner", "/provisioner"],
        "StorageClass's provisioner, which the PV controller writes on the claim",
    ),
    ("sandbox/actors/scheduler.rs", &["/provisioner"], "StorageClass's provisioner"),
    ("sandbox/demo/objects.rs", &["attacher", "provisioner"], "fields of the objects that people create"),
    (
        "sandbox/api/pure/",
        &[
            "attacher",
            "Attacher",
            "spec.attacher",
            "spec.attacher:string",
            "provisioner",
            "Provisioner",
            "provisioner:string",
        ],
        "fields and columns that a kube-apiserver knows",
    ),
];

/// The names of all roles, of those to come, and of the Go sidecars, each as its words: `csi-resizer` is the resizer's.
fn names() -> BTreeSet<Vec<String>> {
    let roles = ROLES.iter().map(|role| role.name);
    let sidecars = hosted().into_iter().flat_map(|sidecar| sidecar.signs.words.iter().copied().chain([sidecar.name]));
    // Upstream's program that is all sidecars has their common name: no role's.
    let others = UNHOSTED.iter().filter(|sidecar| sidecar.does.is_none());
    let others = others.flat_map(|sidecar| sidecar.signs.words.iter().copied().chain([sidecar.name]));
    let bare = |name: &str| {
        let words = words(name);
        let known = usize::from(["csi", "external"].contains(&&*words[0]));
        words[known..].to_vec()
    };
    roles.chain(sidecars).chain(others).map(bare).collect()
}

/// `roles.attacherQueue` has the words roles, attacher and queue. A plural counts as its singular.
fn words(token: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in token.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && after_lower) {
            words.push(String::new());
        }
        after_lower = c.is_ascii_lowercase();
        if c.is_ascii_alphanumeric() {
            words.last_mut().unwrap().push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words.into_iter().map(|word| word.strip_suffix('s').unwrap_or(&word).to_owned()).collect()
}

/// The tokens of a line that name a role. Published names of the Kubernetes API are no roles.
fn naming<'a>(names: &BTreeSet<Vec<String>>, line: &'a str) -> Vec<&'a str> {
    let of_a_token = |c: char| c.is_ascii_alphanumeric() || "_./:-".contains(c);
    line.split(|c: char| !of_a_token(c))
        .map(|token| token.trim_matches([':', '.']))
        .filter(|token| !token.contains("k8s.io/") && !token.contains("kubernetes.io/"))
        .filter(|token| {
            let words = words(token);
            names.iter().any(|name| words.windows(name.len()).any(|part| part == name))
        })
        .collect()
}

#[test]
fn no_role_is_named_outside_its_folder() {
    let names = names();
    let (mut faults, mut used) = (Vec::new(), BTreeSet::new());
    for (relative, path) in files() {
        // The sandbox's driver is a whole driver: it plays what roles ask of one.
        if relative.starts_with("roles/") || relative.starts_with("sandbox/driver/") {
            continue;
        }
        for line in code(&path).lines() {
            for token in naming(&names, line) {
                let row =
                    ALLOWED.iter().position(|(file, tokens, _)| relative.starts_with(file) && tokens.contains(&token));
                match row {
                    Some(row) => drop(used.insert((row, token.to_owned()))),
                    None => faults.push(format!("{relative}: `{token}` in {}", line.trim())),
                }
            }
        }
    }
    assert!(faults.is_empty(), "what is said of a role belongs in its `Registration`:\n{}", faults.join("\n"));
    for (row, (file, tokens, _)) in ALLOWED.iter().enumerate() {
        for token in *tokens {
            assert!(
                used.contains(&(row, (*token).to_owned())),
                "{file} no longer names `{token}`: take it off the list"
            );
        }
    }
}

#[test]
fn a_role_is_found_however_it_is_spelled() {
    let names = names();
    for (line, found) in [
        ("\"roles.attacher.workers\"", vec!["roles.attacher.workers"]),
        ("names::provisioner_lease(&driver)", vec!["names::provisioner_lease"]),
        ("struct ReconcilerSection;", vec!["ReconcilerSection"]),
        ("const PROVISIONERS: [&str; 1] = [\"csi-resizer\"];", vec!["PROVISIONERS", "csi-resizer"]),
        ("\"node-driver-registrar\"", vec!["node-driver-registrar"]),
        ("status.attachError = reconcile(attached, provisioning)", vec![]),
        ("\"volume.kubernetes.io/storage-provisioner\"", vec![]),
    ] {
        assert_eq!(naming(&names, line), found, "{line}");
    }
    assert_eq!(without_tests("// the attacher\n#[cfg(test)]\nmod attacher;\n").trim(), "");
}
