//! The identity that a Lease names, and whose process it is. Pure.
//!
//! | identity | of |
//! |---|---|
//! | `HOST_TOKEN` | a process anywhere: the host's name, sanitised as the Go sidecars do, and a random token |
//! | `POD_UID_CONTAINER_TOKEN` | the one process that holds the lock of its container, see [`super::container`] |
//!
//! Names of pods and containers have no underscore, and neither has an identity of a Go sidecar.

/// A process in a container, as its identity says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContainerProcess<'a> {
    pub(super) pod: &'a str,
    pub(super) pod_uid: &'a str,
    pub(super) container: &'a str,
    token: &'a str,
}

impl<'a> ContainerProcess<'a> {
    /// `None`: the identity names no container.
    pub(super) fn parse(identity: &'a str) -> Option<Self> {
        let mut parts = identity.split('_');
        let (pod, pod_uid, container, token) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_name =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
        let is_whole = parts.next().is_none() && [pod, pod_uid, container, token].into_iter().all(is_name);
        is_whole.then_some(Self { pod, pod_uid, container, token })
    }

    /// Whether this process began after the end of `other`: both have held the lock of the same container, and only one process at a
    /// time can.
    fn succeeds(&self, other: &Self) -> bool {
        let container = |it: &Self| (it.pod, it.pod_uid, it.container);
        container(self) == container(other) && self.token != other.token
    }
}

/// The pod of the process with this identity, if it has one: a sidecar's identity is its pod's name alone.
///
/// ```
/// use csi_control_plane::election::pod_of;
///
/// assert_eq!(pod_of("driver-0_0b5c0f9e_daemon_1b2c"), "driver-0");
/// assert_eq!(pod_of("driver-0_1b2c"), "driver-0");
/// assert_eq!(pod_of("driver-0"), "driver-0");
/// ```
pub fn pod_of(identity: &str) -> &str {
    identity.split_once('_').map_or(identity, |(pod, _)| pod)
}

/// What a process writes into the termination log of its container: people read it in `kubectl describe pod`.
pub(super) fn termination_message(identity: &str) -> String {
    format!("leader election identity: {identity}")
}

/// Whether the process with the identity `me` proves, by its existence, that the process with the identity `holder` has ended.
pub(super) fn succeeds(me: &str, holder: &str) -> bool {
    match (ContainerProcess::parse(me), ContainerProcess::parse(holder)) {
        (Some(me), Some(holder)) => me.succeeds(&holder),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b5c0f9e-5a3d-4a6a-9a71-5b3e9e7c1f10";

    #[test]
    fn an_identity_of_another_program_names_no_container() {
        for identity in
            ["", "host", "go-sidecar", "host_1b2c3d4e", "a_b_c", "a_b_c_d_e", "a__c_d", "_b_c_d", "a b_c_d_e"]
        {
            assert_eq!(ContainerProcess::parse(identity), None, "{identity}");
        }
    }

    #[test]
    fn only_a_later_process_of_the_same_container_of_the_same_pod_is_a_successor() {
        let (me, other) = (format!("pod_{UID}_daemon_2"), "0b5c0f9e-0000-0000-0000-000000000000");
        for (holder, expected) in [
            (format!("pod_{UID}_daemon_1"), true),
            (format!("other_{UID}_daemon_1"), false),
            (me.clone(), false),
            (format!("pod_{UID}_driver_1"), false),
            (format!("pod_{other}_daemon_1"), false),
            ("pod_1".to_owned(), false),
            ("go-sidecar".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(succeeds(&me, &holder), expected, "{holder}");
            assert!(!succeeds("pod_1", &holder), "a process without a container proves nothing: {holder}");
        }
    }
}
