//! What the checks know of a content, of a snapshot or of a group, and what follows for its calls: I1, and of I6 that somebody has
//! asked for a deletion and that nobody needs what is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::checks::{self, AGE, MEMBER, POLICY, annotation};
use super::groups;
use crate::stage::Commit;
use crate::world::{DAEMONS, is_deleting, text};

/// So much later than a change an attempt may begin that does not see it: watches are late.
pub(super) const LATE: Duration = Duration::from_secs(25);

/// Where a content of one kind has what the checks read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    handle: &'static str,
    given: &'static str,
    owner: &'static str,
    mark: &'static str,
    lost: &'static str,
}

pub(super) const OF_SNAPSHOTS: Fields = Fields {
    handle: checks::HANDLE,
    given: checks::GIVEN,
    owner: checks::OWNER,
    mark: checks::MARK,
    lost: checks::LOST,
};

pub(super) const OF_GROUPS: Fields = Fields {
    handle: groups::HANDLE,
    given: groups::GIVEN,
    owner: groups::OWNER,
    mark: groups::MARK,
    lost: groups::LOST,
};

/// Contents of one kind, by uid. Those that are gone are among them.
pub(super) type Contents = BTreeMap<String, Content>;

/// A content.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) object: Value,
    pub(super) is_gone: bool,
    /// When it was made, when its deletion was asked for, and when it went.
    pub(super) made_at: Duration,
    pub(super) deleting_at: Option<Duration>,
    pub(super) gone_at: Option<Duration>,
    /// When it was made, the deletion of the snapshot that it names had been asked for.
    pub(super) is_late: bool,
    /// Finalizer and mark were on it, and no daemon has taken the mark off since.
    pub(super) is_begun: bool,
    /// The names that the driver was asked by while it was there.
    pub(super) asked: BTreeSet<String>,
    /// The last handle that its status had.
    pub(super) handle: String,
    /// When its policy was changed.
    pub(super) policy_at: Option<Duration>,
    /// The term in which a user has removed it by force.
    pub(super) forced_in: Option<u64>,
}

impl Content {
    /// Takes in a commit of it.
    pub(super) fn committed(&mut self, commit: &Commit<'_>, last: &Value, is_protected: bool, fields: Fields) {
        let is_marked = annotation(last, fields.mark).is_some();
        if is_marked && is_protected {
            self.is_begun = true;
        } else if DAEMONS.contains(&commit.actor) && !is_marked {
            self.is_begun = false;
        }
        if !text(last, fields.handle).is_empty() {
            text(last, fields.handle).clone_into(&mut self.handle);
        }
        if commit.old.is_none() {
            self.made_at = commit.at;
        } else if commit.old.is_some_and(|old| text(old, POLICY) != text(last, POLICY)) {
            self.policy_at = Some(commit.at);
        }
        if is_deleting(last) {
            self.deleting_at.get_or_insert(commit.at);
        }
        self.is_gone = commit.new.is_none();
        self.gone_at = self.is_gone.then_some(commit.at);
        self.object = last.clone();
    }

    /// Whether its policy was changed so shortly before that a decision may rest on the old one.
    pub(super) fn has_new_policy(&self, at: Duration) -> bool {
        self.policy_at.is_some_and(|since| at < since + AGE)
    }

    /// Whether it has said what it says for so long that every daemon knows.
    pub(super) fn is_settled(&self, at: Duration) -> bool {
        self.policy_at.unwrap_or(self.made_at).max(self.made_at) + LATE < at
    }

    /// Whether its policy is `Delete`, or was another one once.
    pub(super) fn may_go(&self) -> bool {
        self.deletes() || self.policy_at.is_some()
    }

    fn deletes(&self) -> bool {
        text(&self.object, POLICY) == "Delete"
    }
}

impl Fields {
    /// The handle of a content, wherever it is known from.
    pub(super) fn handle<'a>(&self, object: &'a Value) -> &'a str {
        let stored = text(object, self.handle);
        if stored.is_empty() { text(object, self.given) } else { stored }
    }

    /// Whether a content is for what was there before.
    pub(super) fn is_given(&self, object: &Value) -> bool {
        !text(object, self.given).is_empty()
    }

    /// Whether nobody wants a content any more.
    pub(super) fn is_unwanted(&self, object: &Value) -> bool {
        annotation(object, self.lost).is_some() || self.is_given_and_unbound(object)
    }

    fn is_given_and_unbound(&self, object: &Value) -> bool {
        self.is_given(object) && text(object, self.owner).is_empty()
    }

    /// Whether a content has or had this snapshot.
    pub(super) fn had(&self, content: &Content, id: &str) -> bool {
        content.handle == id || self.handle(&content.object) == id
    }

    /// Whether what has this name at the driver was taken for the owner of a content.
    pub(super) fn is_named_for(&self, content: &Content, name: &str) -> bool {
        let owner = text(&content.object, self.owner);
        !owner.is_empty() && name.ends_with(owner) && !self.is_given(&content.object)
    }

    /// Why the snapshot of a content must not be deleted for it. None: its deletion was asked for.
    fn objections(&self, content: &Content, at: Duration) -> Vec<&'static str> {
        let object = &content.object;
        let is_unbound = self.is_given_and_unbound(object);
        let all = [
            (!is_deleting(object), "is not being deleted"),
            (annotation(object, self.mark).is_some() && !is_unbound, "is marked"),
            (annotation(object, self.lost).is_none() && !is_unbound, "is still wanted by its owner"),
            (!content.deletes() && !content.has_new_policy(at), "says that it is kept"),
        ];
        all.into_iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, why)| why).collect()
    }

    /// I1: whether a content of the owner that `name` is made of has said that the driver is called, or has a handle. `Err` says
    /// whether any content of it is known.
    pub(super) fn may_ask(&self, contents: &Contents, name: &str, at: Duration) -> Result<(), bool> {
        let mut of_owner = contents.values().filter(|it| self.is_named_for(it, name)).peekable();
        let is_known = of_owner.peek().is_some();
        let has_handle = |it: &Content| !it.is_gone && !text(&it.object, self.handle).is_empty();
        // A late watch shows a handle for a while after its content is gone, and a look at it asks for nothing new.
        let shows_late = |it: &Content| !it.handle.is_empty() && it.gone_at.is_some_and(|gone| at < gone + LATE);
        of_owner.any(|it| it.is_begun || has_handle(it) || shows_late(it)).then_some(()).ok_or(is_known)
    }

    /// The driver is asked by this name, for a content that is there or that was removed by force in this term. If there is neither, the
    /// leader's watch shows one that was removed by force before.
    pub(super) fn note_asked(&self, contents: &mut Contents, name: &str, terms: u64) {
        let has_none = |it: &Content| !it.is_gone && text(&it.object, self.handle).is_empty();
        let is_owed = |it: &Content| it.is_begun && it.forced_in == Some(terms);
        let is_its = |it: &Content| self.is_named_for(it, name) && (has_none(it) || is_owed(it));
        let is_by_late_watch = !contents.values().any(is_its);
        for content in contents.values_mut() {
            let is_before = is_by_late_watch && self.is_named_for(content, name) && content.forced_in.is_some();
            if is_its(content) || (is_before && content.is_begun) {
                content.asked.insert(name.to_owned());
            }
        }
    }

    /// I6: what is wrong with a call that deletes `id`, which has the name `name` at the driver.
    pub(super) fn fault(&self, contents: &Contents, id: &str, name: &str, at: Duration) -> Option<String> {
        let alive = || contents.values().filter(|it| !it.is_gone && self.handle(&it.object) == id);
        let (asking, needing): (Vec<_>, Vec<_>) = alive().partition(|it| self.objections(it, at).is_empty());
        let asked_since = asking.iter().filter_map(|it| it.deleting_at);
        let forced_since = contents.values().filter(|it| self.may_go(contents, it, id, name, at));
        let Some(since) = asked_since.chain(forced_since.filter_map(|it| it.gone_at)).min() else {
            return Some(match needing.first() {
                Some(content) => {
                    format!("{id} is deleted, and its content {:?}: {}", self.objections(content, at), content.object)
                }
                None => format!("{id} is deleted, and no content has it"),
            });
        };
        // A content that was made after that may come too late.
        let is_known = |it: &&&Content| it.made_at < since || it.made_at + LATE < at;
        let is_settled = |it: &&&Content| it.policy_at.is_none_or(|changed| changed + LATE < at);
        let needing = needing.iter().filter(is_settled).find(is_known)?;
        Some(format!("{id} is deleted, and another content needs it: {}", needing.object))
    }

    /// Whether a snapshot may be deleted for a content that somebody has removed by force: the daemon owed an answer for it, or for
    /// one before it of the same owner, or had sent the call just before. A user who has kept the snapshot in a content of the same
    /// owner needs it.
    fn may_go(&self, contents: &Contents, forced: &Content, id: &str, name: &str, at: Duration) -> bool {
        if forced.forced_in.is_none() || !forced.deletes() {
            return false;
        }
        let was_going = self.had(forced, id) && self.objections(forced, at).is_empty();
        let is_just_gone = forced.gone_at.is_some_and(|gone| at < gone + AGE);
        let mut of_owner = contents.values().filter(|it| self.is_named_for(it, name));
        let is_owed = of_owner.clone().any(|it| it.forced_in.is_some() && it.is_begun);
        let is_kept = of_owner.any(|it| it.is_gone && !it.deletes() && !it.has_new_policy(at) && it.handle == id);
        (was_going && is_just_gone) || (self.is_named_for(forced, name) && is_owed && !is_kept)
    }

    /// Whether a content other than `uid` names the snapshot, or did so until a moment ago.
    pub(super) fn is_named_by_another(&self, contents: &Contents, id: &str, uid: &str, at: Duration) -> bool {
        let is_there = |it: &Content| it.gone_at.is_none_or(|gone| at < gone + LATE);
        contents.iter().any(|(other, it)| other != uid && is_there(it) && self.had(it, id))
    }

    /// Whether the deletion of `id` was asked for by now, with a content or by its removal by force.
    pub(super) fn is_going(&self, contents: &Contents, id: &str, name: &str) -> bool {
        contents.values().any(|it| {
            let is_of = self.had(it, id) || self.is_named_for(it, name);
            let is_forced = it.forced_in.is_some() && (it.is_begun || it.deleting_at.is_some());
            is_of && it.deletes() && if it.is_gone { is_forced } else { is_deleting(&it.object) }
        })
    }
}

/// The content of a snapshot that keeps the group which the snapshot is of from being deleted: somebody has kept the snapshot, or has
/// put it into a content of its own. `owns`: whether the group owns the `VolumeSnapshot` of a content.
pub(super) fn keeper<'a>(
    singles: &'a Contents,
    group: &str,
    members: &BTreeSet<String>,
    owns: impl Fn(&Value) -> bool,
) -> Option<&'a Content> {
    singles.values().filter(|it| !it.is_gone).find(|it| {
        let object = &it.object;
        let is_member = annotation(object, MEMBER) == Some(group) || text(object, groups::HANDLE) == group;
        let is_going = is_deleting(object) && OF_SNAPSHOTS.is_unwanted(object);
        members.contains(OF_SNAPSHOTS.handle(object)) && !(it.deletes() && (is_member || is_going || owns(object)))
    })
}
