//! What the caller wants. Pure.

/// All that this cluster can run: its nodes have no Windows and no `SELinux`, no spec can log in to them, and there is no service for the
/// metadata of snapshots.
const ALL: &str = "!Disruptive && !/^Feature:(Windows|SELinux|snapshotmetadata)/";
/// What every driver is expected to pass, and that takes no minutes.
const FAST: &str = "!/^Feature:/ && !Slow && !Serial && !Disruptive";

/// What plays the controller's part beside the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controllers {
    /// The daemon.
    Daemon,
    /// The Go sidecars.
    Sidecars,
    /// Both in turn, and the daemon is killed in its turns.
    Turns,
}

/// Which specs are run, and with which controllers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// ginkgo's filter of labels.
    pub(super) labels: String,
    /// What a spec's name has to match, if anything.
    pub(super) focus: Option<String>,
    /// How many specs are run at once. Those that want to be alone are alone.
    pub(super) processes: usize,
    /// What is tried.
    pub(super) controllers: Controllers,
}

impl Options {
    /// From the arguments of `just kubernetes-suite`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self { labels: ALL.to_owned(), focus: None, processes: 5, controllers: Controllers::Daemon };
        let mut words = text.split_whitespace().peekable();
        while let Some(option) = words.next() {
            // A name of a spec has blanks.
            let mut value = Vec::new();
            while let Some(word) = words.next_if(|word| !word.starts_with("--")) {
                value.push(word);
            }
            let value = value.join(" ");
            match option {
                "--fast" if value.is_empty() => FAST.clone_into(&mut options.labels),
                "--sidecars" if value.is_empty() => options.controllers = Controllers::Sidecars,
                "--turns" if value.is_empty() => options.controllers = Controllers::Turns,
                "--labels" if !value.is_empty() => options.labels = value,
                "--focus" if !value.is_empty() => options.focus = Some(value),
                "--processes" => {
                    options.processes = value.parse().map_err(|_| format!("--processes {value}: it is a number"))?;
                }
                "--labels" | "--focus" => return Err(format!("{option} needs a value")),
                "--fast" | "--sidecars" | "--turns" => {
                    return Err(format!("{option} takes no value, and {value:?} is one"));
                }
                _ => {
                    let known = "--fast, --labels FILTER, --focus REGEX, --processes NUMBER, --sidecars, --turns";
                    return Err(format!("{option} is not one of {known}"));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_everything_with_our_daemon() {
        let options = Options::parse("").unwrap();
        assert_eq!((options.labels.as_str(), options.focus, options.controllers), (ALL, None, Controllers::Daemon));
    }

    #[test]
    fn a_focus_is_a_name_with_blanks() {
        let options = Options::parse("--focus should store data --sidecars --fast --processes 2").unwrap();
        let wanted = Options {
            labels: FAST.to_owned(),
            focus: Some("should store data".to_owned()),
            processes: 2,
            controllers: Controllers::Sidecars,
        };
        assert_eq!(options, wanted);
        assert_eq!(Options::parse("--turns").unwrap().controllers, Controllers::Turns);
        assert_eq!(Options::parse("--labels Slow && !Serial").unwrap().labels, "Slow && !Serial");
    }

    #[test]
    fn what_is_no_option_is_said() {
        for (text, told) in [
            (
                "--foucs x",
                "--foucs is not one of --fast, --labels FILTER, --focus REGEX, --processes NUMBER, --sidecars, --turns",
            ),
            ("--focus", "--focus needs a value"),
            ("--fast x y", "--fast takes no value, and \"x y\" is one"),
            ("--processes many", "--processes many: it is a number"),
        ] {
            assert_eq!(Options::parse(text).unwrap_err(), told);
        }
    }
}
