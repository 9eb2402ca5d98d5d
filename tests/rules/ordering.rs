//! The linker script of `benches/compare`, which puts first what the daemon executes.

use crate::order::{Functions, Group, in_each_build, script};

const PROBE: &str = "_RNvNtNtNtCsdHShOHzZT6y_17csi_control_plane5roles8liveness5probe";
const SERVE: &str = "_RNvNtNtNtCsdHShOHzZT6y_17csi_control_plane5roles8liveness5serve";
const IDLE: &str = "_RNvNtNtNtCsdHShOHzZT6y_17csi_control_plane5roles8liveness4idle";
const ERROR: &str = "_RNvMs5_NtNtCsaz6eC2DG7lh_3std2io5error3new.llvm.77";
const OPEN: &str = "_RNvNtNtCs5BliBxkEZsN_5tokio2fs4open";

/// The instance of `poll` for a closure of a module.
fn poll(module: &str) -> String {
    format!("_RNvXs0_NtNtCs7BliBxkEZsN_4core6future7poll_fnNCNvNtCsdHShOHzZT6y_17csi_control_plane{module}4work0")
}

/// The lines of a script whose sections have at most so many bytes: of functions with 100 bytes that run and with 1000 that do not.
fn ordered(most: u64) -> Vec<String> {
    let runs = [PROBE.to_owned(), SERVE.to_owned(), ERROR.to_owned(), poll("3app")];
    let rests = [IDLE.to_owned(), OPEN.to_owned(), poll("3csi")];
    let all = runs.iter().map(|name| (name.clone(), 100)).chain(rests.map(|name| (name, 1000)));
    let functions = Functions::new(all.chain(["open", "openat"].map(|name| (name.to_owned(), 10))));
    let node = ["openat", "_RNvCs7BliBxkEZsN_4core4gone", PROBE, SERVE].map(str::to_owned);
    let group = |section, executed: &[String]| Group { section, executed: executed.iter().cloned().collect(), most };
    let script = script(&functions, &[group(".text.node", &node), group(".text.cluster", &runs)]);
    assert!(script.starts_with("/*") && script.ends_with("  }\n}\nINSERT BEFORE .text;\n"), "{script}");
    assert_eq!(script.matches(" : {\n").count(), 2, "{script}");
    let lines = script.lines().filter_map(|line| line.trim().strip_prefix("*(.text.")?.strip_suffix(')'));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_linker_script_names_what_was_executed_by_as_few_letters_as_nothing_else_has() {
    assert_eq!(
        ordered(0),
        [
            "_RNvNtNtNtCs*_17csi_control_plane5roles8liveness5p*",
            "_RNvNtNtNtCs*_17csi_control_plane5roles8liveness5s*",
            "openat",
            "_RNvMs5_NtNtCs*_3std2io5error3n*",
            "_RNvXs0_NtNtCs*_4core6future7poll_fnNCNvNtCs*_17csi_control_plane3a*",
        ]
    );
}

#[test]
fn a_linker_script_names_modules_as_far_as_they_fit() {
    // `probe` and `serve` begin alike, and nothing else does.
    let shorter = "_RNvNtNtNtCs*_17csi_control_plane5roles8liveness5*";
    assert_eq!(ordered(400)[0], shorter, "at no cost");
    assert_eq!((ordered(400).len(), ordered(5000).len()), (4, 4), "nothing else has sixteen letters in common");
}

#[test]
fn a_name_has_what_is_the_same_in_each_build() {
    let cases = [
        (poll("3app"), "_RNvXs0_NtNtCs*_4core6future7poll_fnNCNvNtCs*_17csi_control_plane3app4work0"),
        // What lies in front of the first hash has the same place in each build, and nothing behind it has.
        (
            "_RNvXs0_NtNtCs7BliBxkEZsN_4core3fmtNtB5_3RefNtB14_4Name".into(),
            "_RNvXs0_NtNtCs*_4core3fmtNtB5_3RefNtB*_4Name",
        ),
        ("_RNvNtCsE_4core3fmtB_".into(), "_RNvNtCs*_4core3fmtB_"),
        // Letters and digits of identifiers, constants, lifetimes and of the many of one name are no tags.
        (
            "_RINvNtCs7_4core3runKj8_RL0_hNtCsd_3csi8CsB1_sL_E".into(),
            "_RINvNtCs*_4core3runKj8_RL0_hNtCs*_3csi8CsB1_sL_E",
        ),
        ("_RNCNvMs1a_NtCs7_4core2s_3run0".into(), "_RNCNvMs1a_NtCs*_4core2s_3run0"),
        ("_RNSNvYNCNvCs7_3csi3run0FKCEu8call_vtable".into(), "_RNSNvYNCNvCs*_3csi3run0FKCEu8call_vtable"),
        (ERROR.into(), "_RNvMs5_NtNtCs*_3std2io5error3new"),
    ];
    for (name, expected) in cases {
        assert_eq!(in_each_build(&name), expected);
    }
    // Whatever it is given, it ends, and says what it does not know as it is.
    for name in ["_R", "_R9a", "_RC", "_RCs", "_RB", "_RKj", "_R99999999999999999999999_", "_RsK", "_RN"] {
        assert!(name.starts_with(in_each_build(name).trim_end_matches('*')), "{name}");
    }
}
