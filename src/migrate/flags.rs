//! A Go program's command line, as its `flag` package reads it. Pure.
//!
//! `-x=y`, `--x=y`, `-x y`; a switch is `-x` or `-x=false` and never takes the next argument; `--` and the first argument
//! that is no flag end the reading, silently there, told here.

use crate::config::flags::Takes;

/// One flag as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// Its name, without dashes.
    pub(super) name: String,
    /// Its value; of a bare switch `true`.
    pub(super) value: String,
    /// As it was written, for people.
    pub(super) written: String,
}

/// What makes no sense on a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Odd {
    /// What stands there.
    pub(super) found: String,
    /// What would make sense.
    pub(super) expected: &'static str,
}

/// Reads arguments. `takes` knows the sidecar's flags; of an unknown one the next argument is its value if it looks like
/// one.
pub(super) fn parse(arguments: &[String], takes: impl Fn(&str) -> Option<Takes>) -> (Vec<Given>, Vec<Odd>) {
    let (mut given, mut odd) = (Vec::new(), Vec::new());
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        let bare = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        let Some(bare) = bare.filter(|bare| !bare.is_empty()) else {
            if argument != "--" || rest.peek().is_some() {
                let expected = "flags alone: Go reads none from here on";
                odd.push(Odd { found: argument.clone(), expected });
            }
            break;
        };
        if bare.starts_with('-') || bare.starts_with('=') {
            odd.push(Odd { found: argument.clone(), expected: "a flag: --name or --name=value" });
            continue;
        }
        if let Some((name, value)) = bare.split_once('=') {
            given.push(Given { name: name.to_owned(), value: value.to_owned(), written: argument.clone() });
            continue;
        }
        let kind = takes(bare);
        let next = match kind {
            Some(Takes::Switch) => None,
            Some(_) => rest.next(),
            None => rest.next_if(|next| !next.starts_with('-')),
        };
        match (next, kind) {
            (Some(value), _) => {
                let written = format!("{argument} {value}");
                given.push(Given { name: bare.to_owned(), value: value.clone(), written });
            }
            (None, Some(Takes::Switch) | None) => {
                given.push(Given { name: bare.to_owned(), value: "true".to_owned(), written: argument.clone() });
            }
            (None, Some(_)) => odd.push(Odd { found: argument.clone(), expected: "a value behind it" }),
        }
    }
    (given, odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str]) -> (Vec<(String, String)>, Vec<String>) {
        let arguments: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
        let takes = |name: &str| match name {
            "leader-election" => Some(Takes::Switch),
            "timeout" => Some(Takes::Time),
            _ => None,
        };
        let (given, odd) = parse(&arguments, takes);
        (
            given.into_iter().map(|flag| (flag.name, flag.value)).collect(),
            odd.into_iter().map(|odd| odd.found).collect(),
        )
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn every_spelling_of_go_is_read() {
        for (line, expected) in [
            (&["--timeout=15s"][..], &[("timeout", "15s")][..]),
            (&["-timeout=15s"], &[("timeout", "15s")]),
            (&["-timeout", "15s"], &[("timeout", "15s")]),
            (&["--timeout", "-1s"], &[("timeout", "-1s")]),
            (&["--leader-election"], &[("leader-election", "true")]),
            (&["-leader-election=false", "--timeout=1s"], &[("leader-election", "false"), ("timeout", "1s")]),
            (&["--leader-election", "--timeout=1s"], &[("leader-election", "true"), ("timeout", "1s")]),
            (&["--timeout=a=b"], &[("timeout", "a=b")]),
            (&["--timeout="], &[("timeout", "")]),
            (&["--odd", "value", "--even"], &[("odd", "value"), ("even", "true")]),
            (&["--leader-election", "--"], &[("leader-election", "true")]),
        ] {
            assert_eq!(read(line), (pairs(expected), vec![]), "{line:?}");
        }
    }

    #[test]
    fn where_go_stops_reading_is_told() {
        for (line, given, odd) in [
            (&["csi-attacher", "--timeout=1s"][..], &[][..], "csi-attacher"),
            (&["--leader-election", "true", "--timeout=1s"], &[("leader-election", "true")], "true"),
            (&["--", "--timeout=1s"], &[], "--"),
            (&["---timeout=1s"], &[], "---timeout=1s"),
            (&["--timeout"], &[], "--timeout"),
            (&["-"], &[], "-"),
            (&[""], &[], ""),
        ] {
            assert_eq!(read(line), (pairs(given), vec![odd.to_owned()]), "{line:?}");
        }
    }
}
