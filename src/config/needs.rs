//! What a role's section needs of its surroundings: variables of the environment, and the rest of the file. Pure.
//!
//! A need that is not met never is in this process: the environment of a process does not change. So `run` refuses it as a fault, at the
//! start and in a reload. `check` may run elsewhere than the daemon, for example in a pipeline, and only says it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::process::{Fault, Faults};

/// A variable of the environment that a key needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The key, below the role's.
    pub key: &'static str,
    /// The variable.
    pub variable: &'static str,
    /// The pod's field that has its value.
    pub field: &'static str,
}

impl Need {
    /// The name of the node that the daemon runs on.
    pub const fn node(key: &'static str) -> Self {
        Self { key, variable: "NODE_NAME", field: "spec.nodeName" }
    }

    /// The name of the pod that the daemon runs in.
    pub const fn pod(key: &'static str) -> Self {
        Self { key, variable: "POD_NAME", field: "metadata.name" }
    }
}

/// What a role's complete section needs of the environment.
pub type Needs = fn(&Value) -> Vec<Need>;

/// Which needs of a role's complete section the environment does not meet.
pub(super) fn unmet(role: &str, needs: &[Need], section: &Value, environment: &BTreeMap<String, String>) -> Vec<Fault> {
    let is_set = |variable: &str| environment.get(variable).is_some_and(|value| !value.is_empty());
    let mut faults = Faults::below(format!("roles.{role}"));
    for Need { key, variable, field } in needs.iter().filter(|need| !is_set(need.variable)) {
        let value = key.split('.').fold(section, |section, key| &section[key]);
        let found = format!("{value}, and the variable {variable} is not set");
        faults.add(key, found, format_args!("this only where the pod sets {variable} from its field {field}"));
    }
    faults.into_vec()
}
