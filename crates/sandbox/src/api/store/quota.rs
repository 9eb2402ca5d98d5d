//! The real server's admission plugin `ResourceQuota`, as far as it judges claims.
//!
//! It goes by what a quota's status says, which another controller keeps: the sandbox's is `actors/quotas.rs`. What it lets
//! through it adds there at once. Only growth is judged, and no write of a status is refused: that is charged without a question.

use serde_json::Value;

use super::{Change, Key, State, meta};
use crate::api::pure::quota::{self, Amounts};
use crate::api::pure::rejection::Rejection;
use crate::api::pure::resources::{RESOURCES, Resource};

const HARD: [&str; 2] = ["status", "hard"];
const USED: [&str; 2] = ["status", "used"];

/// The use of each quota after a write.
#[must_use]
pub(super) struct Charges(Vec<Value>);

impl State {
    /// Judges a write by the quotas of its namespace.
    pub(super) fn charge(
        &self,
        resource: &Resource,
        namespace: &str,
        old: Option<&Value>,
        new: &Value,
        is_status: bool,
    ) -> Result<Charges, Rejection> {
        if resource.plural != "persistentvolumeclaims" {
            return Ok(Charges(Vec::new()));
        }
        let refused = |why: String| Rejection::forbidden_because(resource, meta::text(new, "name"), why);
        let mut concerned = Vec::new();
        for held in self.every("", "resourcequotas") {
            let hard = quota::amounts(held, &HARD);
            if meta::text(held, "namespace") != namespace || hard.is_empty() || !quota::is_in_scope(held, new) {
                continue;
            }
            let (name, used) = (meta::text(held, "name"), quota::amounts(held, &USED));
            if hard.keys().any(|it| !used.contains_key(it)) {
                let names: Vec<&str> = hard.keys().map(String::as_str).collect();
                return Err(refused(format!("status unknown for quota: {name}, resources: {}", names.join(","))));
            }
            concerned.push((held, name, hard, used));
        }
        let usage = quota::usage(new);
        let mut charged = Vec::new();
        for (held, name, hard, used) in concerned {
            let before = old.filter(|old| quota::is_in_scope(held, old)).map(quota::usage).unwrap_or_default();
            let growth = |(name, amount): (&String, &i64)| {
                let more = amount - before.get(name).copied().unwrap_or_default();
                (more > 0 && hard.contains_key(name)).then(|| (name.clone(), more))
            };
            let asked: Amounts = usage.iter().filter_map(growth).collect();
            let after = |name: &String| used[name].saturating_add(asked[name]);
            let exceeded = |all: &Amounts| -> Amounts {
                let of = asked.keys().filter(|name| after(name) > hard[*name]);
                of.map(|name| (name.clone(), all[name])).collect()
            };
            let over = exceeded(&asked);
            if !over.is_empty() && !is_status {
                return Err(refused(format!(
                    "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                    quota::told(&over),
                    quota::told(&exceeded(&used)),
                    quota::told(&exceeded(&hard)),
                )));
            }
            if !asked.is_empty() {
                let sums: Amounts = asked.keys().map(|name| (name.clone(), after(name))).collect();
                let mut counted = held.clone();
                if let Some(used) = counted.pointer_mut("/status/used").and_then(Value::as_object_mut) {
                    used.extend(quota::listed(&sums));
                }
                charged.push(counted);
            }
        }
        Ok(Charges(charged))
    }

    /// The write is done.
    pub(super) fn settle(&mut self, charges: Charges) {
        let Some(resource) = RESOURCES.iter().find(|it| it.plural == "resourcequotas") else { return };
        for quota in charges.0 {
            let key = Key::new(meta::text(&quota, "namespace"), meta::text(&quota, "name"));
            self.commit(resource, key, Change::Put(quota), "system:apiserver");
        }
    }
}
