//! Lines that users type.

use super::*;

fn parsed(line: &str, variables: &[(&str, &str)]) -> Result<Command, Instead> {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    parse(
        std::iter::once("csi-control-plane").chain(line.split_whitespace()).map(OsString::from).collect(),
        &environment,
        &crate::roles::sidecars::hosted(),
    )
}

#[test]
fn the_definition_is_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn the_standard_input_is_checked_and_not_run_since_it_cannot_be_read_again() {
    let is_from = |line: &str, variables: &[(&str, &str)]| match parsed(line, variables) {
        Ok(Command::Check { config, .. }) => config == Some(PathBuf::from("-")),
        other => panic!("{line}: {other:?}"),
    };
    let variable = [(FILE_VARIABLE, "-")];
    for (line, variables) in [("check -", &[][..]), ("check --config -", &[]), ("check", &variable)] {
        assert!(is_from(line, variables), "{line}");
    }
    for (line, variables) in [("run --config -", &[][..]), ("run", &variable)] {
        let refused = parsed(line, variables).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage, "{line}");
        assert!(refused.text.contains("the standard input ends: give it a file"), "{}", refused.text);
    }
}

#[test]
fn the_help_lists_the_verbs_that_this_build_has() {
    let help = parsed("--help", &[]).unwrap_err().text;
    let (manual, sandbox) = (cfg!(feature = "manual"), cfg!(feature = "sandbox"));
    let verbs =
        [("run", true), ("completions", manual), ("man", manual), ("sandbox", sandbox), ("demo-driver", sandbox)];
    for (verb, is_there) in verbs {
        assert_eq!(help.contains(&format!("\n  {verb} ")), is_there, "{verb}: {help}");
    }
    assert!(
        matches!(parsed("sandbox", &[]), Ok(Command::Sandbox { .. })),
        "answered with the reason where there is none"
    );
}

#[test]
fn each_verb_is_a_command() {
    let config = PathBuf::from("c.yaml");
    for (line, command) in [
        ("run --config c.yaml", Command::Run { config: Some(config.clone()), keys: KeyFlags::default() }),
        (
            "check --config c.yaml",
            Command::Check {
                config: Some(config.clone()),
                keys: KeyFlags::default(),
                driver_name: None,
                allow_empty: false,
                kubeconfig: None,
                output: Output::Text,
            },
        ),
        (
            "check c.yaml --allow-empty --kubeconfig k",
            Command::Check {
                config: Some(config.clone()),
                keys: KeyFlags::default(),
                driver_name: None,
                allow_empty: true,
                kubeconfig: Some("k".into()),
                output: Output::Text,
            },
        ),
        (
            "check --config=c.yaml --driver-name ebs.csi.aws.com --output json",
            Command::Check {
                config: Some(config.clone()),
                keys: KeyFlags::default(),
                driver_name: Some("ebs.csi.aws.com".to_owned()),
                allow_empty: false,
                kubeconfig: None,
                output: Output::Json,
            },
        ),
        ("schema", Command::Schema),
        ("completions zsh", Command::Completions { shell: Shell::Zsh }),
        ("man pages", Command::Man { folder: PathBuf::from("pages") }),
        (
            "registration-probe --kubelet-registration-path=/p/csi.sock",
            Command::RegistrationProbe { path: "/p/csi.sock".into() },
        ),
        ("version", Command::Version),
        (
            "migrate -f d.yaml --out o --driver-name d.example --workload deployment/d --lenient --secret n/s --secret n/t",
            Command::Migrate(Box::new(Migrate {
                files: vec!["d.yaml".into()],
                out: Some("o".into()),
                driver_name: Some("d.example".to_owned()),
                namespace: None,
                workload: Some("deployment/d".to_owned()),
                containers: vec![],
                socket: None,
                assumed: vec![],
                image: None,
                secrets: ["s", "t"].map(|name| ("n".to_owned(), name.to_owned())).into(),
                lenient: Some(vec![String::new()]),
                output: Output::Text,
            })),
        ),
        (
            "migrate -f d.yaml --container a --container b --assume csi-provisioner=4.0.1 --assume a=v3",
            Command::Migrate(Box::new(Migrate {
                files: vec!["d.yaml".into()],
                out: None,
                driver_name: None,
                namespace: None,
                workload: None,
                containers: vec!["a".to_owned(), "b".to_owned()],
                socket: None,
                assumed: [("csi-provisioner", "4.0.1"), ("a", "v3")]
                    .map(|(name, version)| (name.to_owned(), version.to_owned()))
                    .into(),
                image: None,
                secrets: vec![],
                lenient: None,
                output: Output::Text,
            })),
        ),
        (
            "sandbox",
            Command::Sandbox { keep: false, csi_endpoint: None, node_id: None, config: None, step_timeout: None },
        ),
        (
            "sandbox --keep --csi-endpoint unix:///x --node-id n --config c.yaml --step-timeout 5m",
            Command::Sandbox {
                keep: true,
                csi_endpoint: Some("unix:///x".to_owned()),
                node_id: Some("n".to_owned()),
                config: Some(config),
                step_timeout: Some(Duration::from_secs(300)),
            },
        ),
    ] {
        assert_eq!(parsed(line, &[]), Ok(command), "{line}");
    }
}

#[test]
fn orphans_are_those_of_a_driver() {
    for (line, command) in [
        (
            "orphans --kubeconfig k --driver-name d.example -n storage --output json",
            Command::Orphans(Orphans {
                kubeconfig: Some("k".into()),
                driver_name: "d.example".to_owned(),
                namespace: Some("storage".to_owned()),
                output: Output::Json,
            }),
        ),
        (
            "orphans --driver-name d.example",
            Command::Orphans(Orphans {
                kubeconfig: None,
                driver_name: "d.example".to_owned(),
                namespace: None,
                output: Output::Text,
            }),
        ),
    ] {
        assert_eq!(parsed(line, &[]), Ok(command), "{line}");
    }
}

#[test]
fn the_demo_driver_is_told_where_it_listens_and_where_its_volumes_are() {
    let command = Command::DemoDriver {
        endpoint: "unix:///csi/csi.sock".to_owned(),
        storage: "/s".into(),
        node_id: Some("n".to_owned()),
        profile: None,
    };
    let line = "demo-driver --endpoint unix:///csi/csi.sock --storage /s --node-id n";
    assert_eq!(parsed(line, &[]), Ok(command));
}

#[test]
fn roles_and_keys_may_be_given_without_a_file() {
    for (line, command) in [
        (
            "run --role attacher --role=resizer --csi-address=/csi/csi.sock --timeout 1m --v=5",
            Command::Run {
                config: None,
                keys: KeyFlags {
                    roles: vec!["attacher".to_owned(), "resizer".to_owned()],
                    csi_address: Some("/csi/csi.sock".to_owned()),
                    timeout: Some("1m".to_owned()),
                    verbosity: Some(5),
                },
            },
        ),
        (
            "check c.yaml -v=4",
            Command::Check {
                config: Some("c.yaml".into()),
                keys: KeyFlags { verbosity: Some(4), ..KeyFlags::default() },
                driver_name: None,
                allow_empty: false,
                kubeconfig: None,
                output: Output::Text,
            },
        ),
    ] {
        assert_eq!(parsed(line, &[]), Ok(command), "{line}");
    }
}

#[test]
fn a_manifest_may_come_from_the_standard_input() {
    let Ok(Command::Migrate(migrate)) = parsed("migrate -f -", &[]) else { panic!("no migration") };
    assert_eq!(migrate.files, [PathBuf::from("-")]);
    let Ok(Command::Migrate(migrate)) = parsed("migrate -f a.yaml -f folder", &[]) else { panic!("no migration") };
    assert_eq!(migrate.files, [PathBuf::from("a.yaml"), PathBuf::from("folder")]);
}

#[test]
fn the_file_may_come_from_the_environment_and_an_argument_wins() {
    let variables = [(FILE_VARIABLE, "e.yaml")];
    let run = |file: &str| Ok(Command::Run { config: Some(file.into()), keys: KeyFlags::default() });
    assert_eq!(parsed("run", &variables), run("e.yaml"));
    assert_eq!(parsed("sandbox", &variables), parsed("sandbox", &[]));
    assert_eq!(parsed("run --config c.yaml", &variables), run("c.yaml"));
}

#[test]
fn usage_errors_exit_64_and_say_what_is_wrong() {
    for (line, text) in [
        ("", "Usage:"),
        ("run", FILE_VARIABLE),
        ("run --csi-address /csi.sock", "or give a --role"),
        ("run --role attacher --v=much", "invalid value 'much'"),
        ("check", "--config FILE"),
        ("run --config", "a value is required"),
        ("run --config c.yaml --fast", "--fast"),
        ("check --config c.yaml --output xml", "text, json"),
        ("walk", "walk"),
        ("runn --config c.yaml", "'run'"),
        ("check a.yaml --config c.yaml", "cannot be used with"),
        ("check c.yaml --driver-name Bad_Name", "such as ebs.csi.aws.com"),
        ("migrate -f d.yaml --driver-name x.", "such as ebs.csi.aws.com"),
        ("schema extra", "extra"),
        ("sandbox --csi-endpoint", "a value is required"),
        ("sandbox --node-id n", "--csi-endpoint"),
        ("sandbox --step-timeout 60", "expected a duration with its unit, such as 15s or 1m30s"),
        ("sandbox --step-timeout 0s", "and more than 0"),
        ("orphans", "--driver-name <NAME>"),
        ("migrate", "--file <FILE>"),
        ("migrate -f d.yaml --secret s", "expected NAMESPACE/NAME"),
        ("migrate -f d.yaml --secret n/*", "expected NAMESPACE/NAME"),
        ("migrate -f d.yaml --assume csi-provisioner", "expected NAME=VERSION"),
        ("migrate -f d.yaml --assume csi-provisioner=latest", "a version such as 4.0.1"),
        ("migrate -f d.yaml --image x:", "expected an image, such as registry.example.com/csi-control-plane:0.1.0"),
    ] {
        let instead = parsed(line, &[]).unwrap_err();
        assert_eq!(instead.exit, Exit::Usage, "{line}");
        assert!(instead.text.contains(text), "{line}: {}", instead.text);
    }
}

#[test]
fn flags_of_the_go_sidecar_are_answered_with_their_key() {
    for (line, text) in [
        ("--csi-address=/run/csi/socket", "the configuration key csi.endpoint"),
        ("run --config c.yaml -worker-threads=10", "roles.attacher.workers"),
        ("run --config c.yaml --kube-api-qps 50", "no counterpart"),
        ("run --config c.yaml --http-endpoint=:8080", "diagnostics.listen"),
    ] {
        let instead = parsed(line, &[]).unwrap_err();
        assert_eq!(instead.exit, Exit::Usage, "{line}");
        assert!(instead.text.contains(text), "{line}: {}", instead.text);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for line in ["--help", "run --help", "--version", "help"] {
        assert_eq!(parsed(line, &[]).unwrap_err().exit, Exit::Success, "{line}");
    }
}
