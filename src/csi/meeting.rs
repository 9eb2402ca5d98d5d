//! The two questions that every driver must answer: whether it is ready, and what its name is.

use super::client::Client;
use super::error::RpcError;
use crate::proto::{GetPluginInfoRequest, GetPluginInfoResponse, ProbeRequest};

/// Why a driver is not ready, or is not known by its name.
#[derive(Debug, thiserror::Error)]
pub enum MeetError {
    /// The first question has failed.
    #[error("cannot probe the driver")]
    Probe(#[source] RpcError),
    /// The driver says so.
    #[error("the driver is not ready yet")]
    NotReady,
    /// The second question has failed.
    #[error("cannot get the driver's name")]
    Info(#[source] RpcError),
    /// No Lease or finalizer can have its name.
    #[error("the driver gives no valid name")]
    Name(#[from] NameError),
}

/// Asks the driver whether it is ready.
pub(super) async fn probe(client: &Client) -> Result<(), MeetError> {
    let answer = client.probe(ProbeRequest {}).await.map_err(MeetError::Probe)?;
    // The field is optional: a driver that leaves it out is ready.
    if answer.ready == Some(false) { Err(MeetError::NotReady) } else { Ok(()) }
}

/// Asks both questions. The name in the answer is a valid one.
pub(super) async fn meet(client: &Client) -> Result<GetPluginInfoResponse, MeetError> {
    probe(client).await?;
    let info = client.get_plugin_info(GetPluginInfoRequest {}).await.map_err(MeetError::Info)?;
    check_name(&info.name)?;
    Ok(info)
}

/// A driver name that the CSI specification does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The field is required.
    #[error("the name is empty")]
    Empty,
    /// The specification's limit.
    #[error("the name has {0} characters, at most {MAX_NAME} are allowed")]
    TooLong(usize),
    /// Only letters, digits, dashes and dots.
    #[error("the name {name:?} contains {found:?}; only ASCII letters, digits, '-' and '.' are allowed")]
    Character {
        /// The whole name.
        name: String,
        /// The first character that is not allowed.
        found: char,
    },
    /// A dash or dot at an end.
    #[error("the name {0:?} does not begin and end with a letter or digit")]
    Ends(String),
}

const MAX_NAME: usize = 63;

/// Checks a driver's name against the specification, because finalizers and Lease names contain it.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let length = name.chars().count();
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    // Checked before the name is quoted: an invalid name may have megabytes.
    if length > MAX_NAME {
        return Err(NameError::TooLong(length));
    }
    if let Some(found) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.')) {
        return Err(NameError::Character { name: name.to_owned(), found });
    }
    if name.starts_with(['-', '.']) || name.ends_with(['-', '.']) {
        return Err(NameError::Ends(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_domain_notation_are_taken() {
        for name in ["ebs.csi.aws.com", "a", "A-1.b", "x--y..z", &"d".repeat(63)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn other_names_are_refused_and_said_why() {
        let character = |name: &str, found| NameError::Character { name: name.into(), found };
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert_eq!(check_name(&"d".repeat(64)), Err(NameError::TooLong(64)));
        assert_eq!(check_name("a/b"), Err(character("a/b", '/')));
        assert_eq!(check_name("trüb"), Err(character("trüb", 'ü')));
        assert_eq!(check_name("a\nb"), Err(character("a\nb", '\n')));
        for name in ["-a", "a-", ".a", "a.", "-"] {
            assert_eq!(check_name(name), Err(NameError::Ends(name.into())));
        }
        assert!(!character("a\nb", '\n').to_string().contains('\n'), "control characters are escaped");
    }
}
