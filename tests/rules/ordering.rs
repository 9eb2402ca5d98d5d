//! The linker script of `benches/compare`, which puts first what the daemon executes.

use crate::order::{Functions, Group, script};

const EXECUTED: [&str; 4] = [
    "_ZN17csi_control_plane5roles8liveness5probe17h0123456789abcdefE",
    "_ZN17csi_control_plane5roles8liveness5serve17h0123456789abcdefE",
    "_ZN5tokio7runtime4task4poll17h0123456789abcdefE",
    "_RNvMs5_NtNtCsaz6eC2DG7lh_3std2io5error3new",
];

fn functions() -> Functions {
    let idle =
        ["_ZN17csi_control_plane5roles8liveness4idle17h0123456789abcdefE", "_ZN5tokio2fs4open17h0123456789abcdefE"];
    let all = EXECUTED.iter().map(|name| (*name, 100)).chain(idle.map(|name| (name, 1000))).chain([("memcpy", 10)]);
    Functions::new(all.map(|(name, bytes)| (name.to_owned(), bytes)))
}

fn ordered(most: u64) -> Vec<String> {
    let node = ["memcpy", "_ZN5gone17h0123456789abcdefE", EXECUTED[0], EXECUTED[1]];
    let group = |section, executed: &[&str]| Group {
        section,
        executed: executed.iter().map(|&name| name.to_owned()).collect(),
        most,
    };
    let script = script(&functions(), &[group(".text.node", &node), group(".text.cluster", &EXECUTED)]);
    assert!(script.starts_with("/*") && script.ends_with("  }\n}\nINSERT BEFORE .text;\n"), "{script}");
    assert_eq!(script.matches(" : {\n").count(), 2, "{script}");
    let lines = script.lines().filter_map(|line| line.trim().strip_prefix("*(.text.")?.strip_suffix(')'));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_linker_script_names_what_was_executed_without_the_hashes_of_a_build() {
    assert_eq!(
        ordered(0),
        [
            "_ZN17csi_control_plane5roles8liveness5probe17h*",
            "_ZN17csi_control_plane5roles8liveness5serve17h*",
            "_RNvMs5_NtNtCs*_3std2io5error3new*",
            "_ZN5tokio7runtime4task4poll17h*",
        ]
    );
}

#[test]
fn a_linker_script_names_modules_as_far_as_they_fit() {
    // `probe` and `serve` begin alike, and nothing else does.
    let shorter = [
        "_ZN17csi_control_plane5roles8liveness5*",
        "_RNvMs5_NtNtCs*_3std2io5error3new*",
        "_ZN5tokio7runtime4task4poll17h*",
    ];
    assert_eq!(ordered(400), shorter, "at no cost");
    assert_eq!(ordered(5000).len(), 3, "nothing else begins with twelve letters in common");
}
