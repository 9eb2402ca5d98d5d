//! Why an attempt at a content failed, and the requests that may fail.

use thiserror::Error;
use tonic::Code;

use crate::roles::kit::finality::{Call, is_final};
use crate::roles::kit::{AttemptError, Op, Reason};
use crate::roles::snapshotter::secrets::SecretFault;

use super::{needed::Needed, wait::Wait};

/// Why a content cannot be worked as things stand, or why the driver's answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidSnapshot {
    /// The content names no class, and is to be taken.
    #[error("failed to take {of} {content} without a {of} class")]
    NoClass {
        /// What is taken.
        of: &'static str,
        /// The content.
        content: String,
    },
    /// There is no class of that name.
    #[error("{0} \"{1}\" not found")]
    ClassMissing(&'static str, String),
    /// There is no class of that name, and it says which secret a look-up needs.
    #[error("{0} \"{1}\" not found")]
    ListClassMissing(&'static str, String),
    /// The class of that name could not be read, and why.
    #[error("{0} \"{1}\" cannot be read: {2}")]
    ClassUnread(&'static str, String, String),
    /// A key that no version knows.
    #[error("found unknown parameter key \"{0}\" with reserved namespace csi.storage.k8s.io/")]
    UnknownParameter(String),
    /// The content names neither volume nor snapshot.
    #[error("the content names no volume to take a snapshot of")]
    NoSource,
    /// The content belongs to no `VolumeSnapshot`. The snapshot's name would contain the uid of that.
    #[error("cannot create {of}. {} content {content} not bound to a {of}", capitalised(.of))]
    Unbound {
        /// What is taken.
        of: &'static str,
        /// The content.
        content: String,
    },
    /// The annotations of the content do not name a secret.
    #[error("cannot retrieve secrets for {of} content \"{content}\", err: {fault}")]
    Secret {
        /// What the secrets are for.
        of: &'static str,
        /// The content.
        content: String,
        /// Why.
        fault: SecretFault,
    },
    /// The class does not name the secret for look-ups.
    #[error("{0}")]
    ListSecret(SecretFault),
    /// The driver does not know the snapshot.
    #[error("can not find snapshot for snapshotID {0}")]
    NotListed(String),
    /// The driver's answer does not say of which volume each snapshot of a group is.
    #[error("the driver's answer {0}")]
    OddMembers(String),
    /// The driver's answer is a success without an id.
    #[error("the driver's answer has no {0}")]
    OddAnswer(&'static str),
    /// The driver has answered with another snapshot than before.
    #[error("the driver has answered with snapshot {answered}, and with {stored} before: one of them is nobody's")]
    OtherSnapshot {
        /// Which one the content names.
        stored: String,
        /// Which one it names now.
        answered: String,
    },
    /// Another content has the name by which the driver is to be asked: it would answer with the snapshot of that one.
    #[error(
        "the driver is not asked for \"{name}\", because {other} of another {owner} has that name. Delete that {owner}, or set a longer \
         {setting}"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The other content, by kind and name.
        other: String,
        /// The kind of the object that users made.
        owner: &'static str,
        /// The key of the configuration that says how many digits make names differ.
        setting: &'static str,
    },
    /// A group cannot be deleted while an object needs one of its snapshots.
    #[error("{0}")]
    MemberNeeded(Needed),
    /// A group cannot be deleted while it is unknown who needs its snapshots.
    #[error(
        "the cluster shows no VolumeSnapshotContents, so it is unknown whether somebody needs a snapshot of the group. Install their \
         CustomResourceDefinition, or grant the right to list them"
    )]
    MembersUnseen,
    /// The driver takes no snapshots.
    #[error("driver {driver} does not have the capability {capability}")]
    Unsupported {
        /// Which one.
        driver: String,
        /// What it lacks.
        capability: &'static str,
    },
    /// It waits for something else than the next try. The text says for what.
    #[error("{1}")]
    Waits(Wait, String),
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// Why an attempt at a content failed.
pub type ContentError = AttemptError<InvalidSnapshot>;
/// Why a step ended the attempt.
pub type Stop = crate::roles::kit::Stop<InvalidSnapshot>;

/// The secret of the content is read.
pub const LOAD_SECRET: Op = Op("cannot get credentials");
/// The secret for look-ups is read.
pub const LOAD_LIST_SECRET: Op = Op("cannot get credentials for listing");
/// The secret of the content is read for a deletion, and only people can bring it.
pub const LOAD_DELETION_SECRET: Op =
    Op("cannot get credentials; set deleteWithoutSecret to delete the snapshot without them");
/// The request is recorded before it is made.
pub const BEGIN: Op = Op("cannot mark the content as begun");
/// The last version of a content that was removed by force is read.
pub const READ_END: Op = Op("cannot read which deletionPolicy the content had in the end");
/// All contents are read before a node's snapshot is deleted.
pub const SEEK: Op = Op("cannot see whether a content of another node, or of none, names the snapshot");
/// The `VolumeSnapshot` of a content that names a snapshot of a group is read before the group is deleted.
pub const READ_OWNER: Op =
    Op("cannot see whether the group owns the VolumeSnapshot of a content that names one of its snapshots");
/// The ids of snapshots that the status cannot list go into an annotation.
pub const LIST_MEMBERS: Op =
    Op("the driver has answered, but the snapshots of the group could not be noted on the content");
/// The driver's answer goes into the status.
pub const SAVE: Op = Op("the driver has answered, but the status of the content could not be updated");
/// The marks of a call that is answered leave the content.
pub const UNMARK: Op = Op("the driver has answered, but the content could not be unmarked");
/// Why there is no snapshot goes into the status.
pub const RECORD_ERROR: Op = Op("the error could not be written to the status of the content");
/// The handle of a deleted snapshot leaves the status.
pub const CLEAR: Op = Op("the snapshot is deleted, but the status of the content could not be cleared");
/// Our finalizer leaves the content.
pub const RELEASE: Op = Op("cannot remove the finalizer from the content");

impl Reason for InvalidSnapshot {
    fn label(&self) -> &'static str {
        match self {
            Self::NoClass { .. } => "NoClass",
            Self::ClassMissing(..) | Self::ListClassMissing(..) => "ClassNotFound",
            Self::ClassUnread(..) => "ClassUnreadable",
            Self::UnknownParameter(_) => "Parameters",
            Self::NoSource => "NoSource",
            Self::Unbound { .. } => "Unbound",
            Self::Secret { .. } | Self::ListSecret(_) => "SecretReference",
            Self::NotListed(_) => "NotListed",
            Self::OddAnswer(_) | Self::OddMembers(_) => "OddAnswer",
            Self::OtherSnapshot { .. } => "OtherSnapshot",
            Self::NameTaken { .. } => "NameTaken",
            Self::MemberNeeded(_) => "MemberNeeded",
            Self::MembersUnseen => "MembersUnseen",
            Self::Unsupported { .. } => "Unsupported",
            Self::Waits(..) => "Waits",
        }
    }
}

/// Whether an error of a call that takes a snapshot or a group says that no snapshot exists, and none is going to (spec 5.5).
pub fn is_refusal(code: Code) -> bool {
    is_final(Call::Cut, code)
}

/// Whether an error of a look by `CreateSnapshot` says that the driver no longer works on it. A name that is taken is an answer, too.
pub fn is_answer(code: Code) -> bool {
    is_refusal(code) || code == Code::AlreadyExists
}

/// Whether asking again soon is of no use after this error of `CreateSnapshot`.
pub fn is_infeasible_create(error: &ContentError) -> bool {
    use InvalidSnapshot::{OddAnswer, OddMembers, OtherSnapshot};
    let is_odd = matches!(error, AttemptError::Reason(OddAnswer(_) | OddMembers(_) | OtherSnapshot { .. }));
    let is_code = |code: Code| matches!(code, Code::InvalidArgument | Code::AlreadyExists);
    is_odd || error.driver().is_some_and(|error| is_code(error.code))
}

/// The same after an error of `DeleteSnapshot`.
pub fn is_infeasible_delete(error: &ContentError) -> bool {
    error.driver().is_some_and(|error| error.code == Code::InvalidArgument)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::RpcError;
    use crate::testing::codes;

    fn driver(code: Code) -> ContentError {
        RpcError { method: "/csi.v1.Controller/CreateSnapshot", code, message: "no".into() }.into()
    }

    /// Spec 5.5, 4.2.
    #[test]
    fn s31_every_code_has_its_class_and_a_name_that_is_taken_is_not_let_go() {
        assert_eq!(codes(is_refusal), [2, 3, 5, 7, 9, 11, 12, 13, 15, 16]);
        assert_eq!(codes(|code| is_infeasible_create(&driver(code))), [3, 6]);
        assert_eq!(codes(|code| is_infeasible_delete(&driver(code))), [3]);
        assert!(is_infeasible_create(&InvalidSnapshot::OddAnswer("snapshot").into()));
        assert!(!is_infeasible_create(&InvalidSnapshot::ClassMissing("classes", "fast".into()).into()));
    }
}
