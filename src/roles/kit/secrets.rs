//! Secrets for calls to the driver: read when they are needed, never cached, never shown.

use std::collections::HashMap;
use std::fmt;

use thiserror::Error;

use crate::cluster::{Api, ApiError, ApiErrorKind, SecretNotText, SecretRef};

/// A Secret's values, as in a CSI request. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(HashMap<String, String>);

impl Secret {
    /// The values by key, for one request.
    pub fn texts(&self) -> HashMap<String, String> {
        self.0.clone()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***stripped***")
    }
}

/// Why a secret could not be read.
#[derive(Debug, Clone, Error)]
pub enum SecretFailure {
    /// The API did not return it.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// It holds bytes that no CSI request can carry.
    #[error(transparent)]
    NotText(#[from] SecretNotText),
}

impl SecretFailure {
    /// Whether there is no secret that a call could carry: it does not exist, or is not text. One that may not be read may exist.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Api(error) => error.kind() == ApiErrorKind::NotFound,
            Self::NotText(_) => true,
        }
    }

    /// Whether the secret does not exist, may not be read, or is not text: only people can change that. After any other
    /// failure a retry may succeed.
    pub fn is_withheld(&self) -> bool {
        match self {
            Self::Api(error) => error.kind().is_withheld(),
            Self::NotText(_) => true,
        }
    }
}

/// Reads a secret.
pub async fn read(api: &Api, place: &SecretRef) -> Result<Secret, SecretFailure> {
    let data = api.get_secret(&place.namespace, &place.name).await?;
    Ok(Secret(data.into_texts()?))
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sandbox::api::faults::{Action, Fault, Matching};
    use crate::sandbox::api::pure::rejection::Rejection;
    use crate::sandbox::driver::Profile;
    use crate::sandbox::testbed::harness::RoleHarness;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret([("password".to_owned(), "hunter2".to_owned())].into());
        assert_eq!(format!("{secret:?}"), "***stripped***");
        assert_eq!(secret.texts()["password"], "hunter2");
    }

    #[tokio::test(start_paused = true)]
    async fn only_people_can_bring_a_secret_that_is_withheld_and_any_other_failure_may_pass() {
        let RoleHarness { testbed, context, tasks: _tasks, .. } = RoleHarness::with(Profile::default()).await;
        // "hunter2", and a byte that no text has.
        for (name, data) in [("text", json!({ "password": "aHVudGVyMg==" })), ("bytes", json!({ "password": "/w==" }))]
        {
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data });
            testbed.api.create_value(secret).unwrap();
        }
        let look = async |name: &str| {
            let place = SecretRef { name: name.to_owned(), namespace: "default".to_owned() };
            read(&context.api, &place).await
        };
        assert_eq!(look("text").await.unwrap().texts()["password"], "hunter2");
        for name in ["bytes", "nothing"] {
            let failure = look(name).await.unwrap_err();
            assert!(failure.is_withheld() && failure.is_missing(), "{name}");
        }
        for (action, expected) in [
            (Action::Refuse(Rejection::forbidden("", "secrets", "text", "no")), true),
            (Action::Refuse(Rejection::unauthorized()), false),
            (Action::Refuse(Rejection::too_many_requests(1)), false),
            (Action::Refuse(Rejection::internal("no")), false),
            (Action::Refuse(Rejection::service_unavailable("no")), false),
            (Action::CutBefore, false),
            (Action::Hold, false),
        ] {
            let fault = testbed.api.faults().add(Fault::on(Matching::any().resource("secrets"), action.clone()));
            let failure = look("text").await.unwrap_err();
            assert_eq!(failure.is_withheld(), expected, "{action:?}: {failure:?}");
            assert!(!failure.is_missing(), "{action:?}: it may be there");
            testbed.api.faults().remove(fault);
        }
        testbed.tear_down().await;
    }
}
