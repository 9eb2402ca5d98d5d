//! Completions for shells, and manual pages, both made of the command line's definition.

use std::io;

use clap::CommandFactory as _;
use clap_mangen::Man;

use super::{Arguments, Shell};

/// What a shell reads to complete our command line.
pub fn completions(shell: Shell) -> String {
    let mut command = Arguments::command();
    let (name, mut text) = (command.get_name().to_owned(), Vec::new());
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Elvish => clap_complete::Shell::Elvish,
        Shell::Fish => clap_complete::Shell::Fish,
        Shell::Powershell => clap_complete::Shell::PowerShell,
        Shell::Zsh => clap_complete::Shell::Zsh,
    };
    clap_complete::generate(generator, &mut command, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The manual pages, each with the name of its file: one of the program, and one of each verb.
pub fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let verbs = program.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let of = |command: clap::Command| {
        let (page, mut text) = (Man::new(command), Vec::new());
        page.render(&mut text)?;
        Ok((page.get_filename(), text))
    };
    std::iter::once(program.clone()).chain(verbs).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbs() -> Vec<String> {
        let there = |verb: &&clap::Command| !verb.is_hide_set();
        Arguments::command().get_subcommands().filter(there).map(|verb| verb.get_name().to_owned()).collect()
    }

    #[test]
    fn each_shell_completes_each_verb() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::Powershell, Shell::Zsh] {
            let text = completions(shell);
            for verb in verbs() {
                assert!(text.contains(&verb), "{shell:?}: {verb}");
            }
            assert!(text.contains("driver-name"), "{shell:?}");
        }
    }

    #[test]
    fn the_program_and_each_verb_have_a_page() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        let expected = verbs().into_iter().map(|verb| format!("csi-control-plane-{verb}.1"));
        assert_eq!(names, std::iter::once("csi-control-plane.1".to_owned()).chain(expected).collect::<Vec<_>>());
        for (name, text) in &pages {
            let text = String::from_utf8(text.clone()).unwrap();
            let title = format!(".TH {} 1", name.trim_end_matches(".1"));
            assert!(text.contains(&title) && text.contains(".SH SYNOPSIS"), "{name}: {text}");
        }
    }
}
