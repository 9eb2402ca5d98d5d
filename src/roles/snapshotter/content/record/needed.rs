//! Why a group cannot be deleted: a content that needs one of its snapshots, and what people can do about it. Pure.

use std::fmt;

/// Whose the `VolumeSnapshot` of a content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The group's: it goes with the group.
    Group,
    /// Another owner's, or it has none.
    Other,
    /// There is none of that uid.
    Missing,
}

/// The `VolumeSnapshot` of a content, by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// The content is bound to none.
    None,
    /// It is being deleted, or gone, as the snapshot-controller has noted on the content.
    Going,
    /// The content refers to it, and the cluster does not have it.
    Missing(String),
    /// It may use the snapshot.
    Lives(String),
}

/// What a group's own policy would mean for the content: whether it goes with the group once its policy is `Delete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithPolicyDelete {
    /// It does.
    Goes,
    /// It does if the group owns its `VolumeSnapshot`.
    GoesIfOwned,
    /// It does not, or that is its policy.
    Stays,
}

/// A snapshot of a group that another content needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The driver's id of the snapshot.
    pub snapshot: String,
    /// The name of the `VolumeSnapshotContent` that names it.
    pub content: String,
    /// Its policy, unless that is `Delete`.
    pub policy: Option<String>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Its `VolumeSnapshot`.
    pub user: User,
    /// What a change of its policy would bring.
    pub with_policy_delete: WithPolicyDelete,
}

impl Needed {
    fn why(&self) -> String {
        match (&self.policy, &self.user) {
            (Some(policy), _) => format!("its deletionPolicy is {policy}"),
            (None, User::None | User::Going) => "it does not belong to the group".to_owned(),
            (None, User::Missing(user)) => {
                format!("its VolumeSnapshot {user}, which could belong to the group, is not there")
            }
            (None, User::Lives(user)) => format!("the group does not own its VolumeSnapshot {user}"),
        }
    }

    /// What people can do, but for what is done already.
    fn ways(&self) -> Vec<String> {
        let mut ways = Vec::new();
        // With another policy than Delete, the snapshot-controller leaves a content behind.
        let is_left = self.policy.is_some() && !self.is_deleting;
        match &self.user {
            User::Lives(user) if is_left => ways.push(format!("delete VolumeSnapshot {user}, and then that content")),
            User::Lives(user) => ways.push(format!("delete VolumeSnapshot {user}")),
            User::None | User::Going if !self.is_deleting => ways.push("delete that content".to_owned()),
            User::None | User::Going | User::Missing(_) => {}
        }
        match self.with_policy_delete {
            WithPolicyDelete::Goes => ways.push("set its deletionPolicy to Delete".to_owned()),
            WithPolicyDelete::GoesIfOwned => {
                ways.push("set its deletionPolicy to Delete if the group owns its VolumeSnapshot".to_owned());
            }
            WithPolicyDelete::Stays => {}
        }
        ways.push("set the deletionPolicy of this one to Retain".to_owned());
        ways
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { snapshot, content, .. } = self;
        let ways = self.ways().join(", or ");
        let (why, mut letters) = (self.why(), ways.chars());
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        let rest = letters.as_str();
        write!(
            f,
            "its snapshot {snapshot} is also that of VolumeSnapshotContent {content}, which keeps it: {why}. {first}{rest}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(policy: Option<&str>, is_deleting: bool, user: User, with_policy_delete: WithPolicyDelete) -> String {
        let (snapshot, content) = ("snap-2".to_owned(), "theirs".to_owned());
        let policy = policy.map(str::to_owned);
        let text = Needed { snapshot, content, policy, is_deleting, user, with_policy_delete }.to_string();
        let begin = "its snapshot snap-2 is also that of VolumeSnapshotContent theirs, which keeps it: ";
        text.strip_prefix(begin).unwrap().to_owned()
    }

    #[test]
    fn nothing_is_advised_that_is_so_already() {
        let lives = || User::Lives("shop/s".into());
        for (policy, is_deleting, user, with, expected) in [
            (
                None,
                false,
                lives(),
                WithPolicyDelete::Stays,
                "the group does not own its VolumeSnapshot shop/s. Delete VolumeSnapshot \
                 shop/s, or set the deletionPolicy of this one to Retain",
            ),
            (
                None,
                false,
                User::None,
                WithPolicyDelete::Stays,
                "it does not belong to the group. Delete that content, or set the \
                 deletionPolicy of this one to Retain",
            ),
            (
                None,
                true,
                User::Missing("shop/s".into()),
                WithPolicyDelete::Stays,
                "its VolumeSnapshot shop/s, which could belong to the \
                 group, is not there. Set the deletionPolicy of this one to Retain",
            ),
            (
                Some("Retain"),
                false,
                lives(),
                WithPolicyDelete::Goes,
                "its deletionPolicy is Retain. Delete VolumeSnapshot shop/s, and \
                 then that content, or set its deletionPolicy to Delete, or set the deletionPolicy of this one to Retain",
            ),
            (
                Some("Retain"),
                true,
                lives(),
                WithPolicyDelete::GoesIfOwned,
                "its deletionPolicy is Retain. Delete VolumeSnapshot shop/s, \
                 or set its deletionPolicy to Delete if the group owns its VolumeSnapshot, or set the deletionPolicy of this one to \
                 Retain",
            ),
            (
                Some("Retain"),
                true,
                User::Going,
                WithPolicyDelete::Goes,
                "its deletionPolicy is Retain. Set its deletionPolicy to Delete, \
                 or set the deletionPolicy of this one to Retain",
            ),
        ] {
            assert_eq!(told(policy, is_deleting, user, with), expected);
        }
    }
}
