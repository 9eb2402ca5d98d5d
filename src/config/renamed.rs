//! The keys that replaced a sidecar's flag, for a user who writes the name of the flag as a key. Pure.

use super::flags::{Flag, Now, SHARED};
use super::schema::RoleSection;
use super::sidecar::{self, Sidecar};
use super::suggest;

/// What became of the flag.
#[derive(Debug)]
pub(super) enum Renamed {
    /// It is a key, or one of several: which one, as a question.
    Key(String),
    /// No key replaces it: why.
    Gone(String),
}

/// What became of the flag that the last part of `path` is the name of; `None`: it is the name of no flag.
///
/// In the section of a role only the flags of this role's sidecar count, in any spelling: `workerThreads` is none of its keys.
/// Elsewhere the flags of all sidecars count, and a name is that of a flag only if it is spelled so, dashes in front or not.
pub(super) fn renamed(roles: &[RoleSection], path: &[String]) -> Option<Renamed> {
    let (key, above) = path.split_last()?;
    let name = key.trim_start_matches('-');
    let found: Vec<(&str, &Flag)> = match above {
        [block, role, ..] if block == "roles" => {
            let own = sidecars(roles).find(|sidecar| sidecar.roles.contains(&role.as_str()))?;
            let mut flags = own.flags.iter().chain(SHARED);
            flags.find(|flag| suggest::is_same(flag.name, name)).map(|flag| (own.name, flag)).into_iter().collect()
        }
        _ => sidecar::find(&sidecars(roles).collect::<Vec<_>>(), &format!("--{name}")),
    };
    let (_, flag) = *found.first()?;
    let owner = match found.as_slice() {
        [(sidecar, _)] => format!("{sidecar}'s"),
        _ => "the sidecars'".to_owned(),
    };
    let flag_text = format!("{owner} flag --{}", flag.name);
    let mut keys: Vec<&str> = found.iter().filter_map(|(_, flag)| flag.key()).collect();
    // A key for all roles before those of one role.
    keys.sort_by_key(|key| (key.starts_with("roles."), *key));
    keys.dedup();
    Some(match (keys.as_slice(), flag.now) {
        ([], Now::Verb(verb)) => Renamed::Gone(format!("nothing: {flag_text} is the command `{verb}`")),
        ([], _) => Renamed::Gone(format!("nothing: no key replaces {flag_text} ({})", note(&found))),
        ([key], _) => {
            let note = note(&found);
            let note = if note.is_empty() { String::new() } else { format!("; what differs: {note}") };
            Renamed::Key(format!("did you mean `{key}`? It replaces {flag_text}{note}"))
        }
        ([first @ .., last], _) => {
            Renamed::Key(format!("did you mean `{}` or `{last}`? They replace {flag_text}", first.join("`, `")))
        }
    })
}

fn sidecars(roles: &[RoleSection]) -> impl Iterator<Item = &'static Sidecar> {
    roles.iter().filter_map(|role| role.sidecar)
}

/// What differs, or why there is no key: where the sidecars do not agree, the document that has them all.
fn note(found: &[(&str, &Flag)]) -> &'static str {
    let mut notes = found.iter().map(|(_, flag)| flag.difference());
    let first = notes.next().unwrap_or_default();
    if notes.all(|note| note == first) && !first.starts_with("see ") { first } else { "see docs/flags.md" }
}
