//! Which objects of a kind are watched. Pure.
//!
//! Most kinds are watched completely. If each daemon creates its own objects of a kind, a role watches only its own
//! objects. The scope is a function of the daemon's place, because roles load before the place is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::objects::Fields;

/// The place of a daemon: driver, namespace and node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewpoint<'a> {
    /// The driver.
    pub driver: &'a str,
    /// The namespace that the daemon runs in.
    pub namespace: Option<&'a str>,
    /// The node that it runs on, if known.
    pub node: Option<&'a str>,
}

impl<'a> Viewpoint<'a> {
    /// A viewpoint with only a driver.
    pub fn of(driver: &'a str) -> Self {
        Self { driver, namespace: None, node: None }
    }
}

/// Which objects of a kind are watched: by default all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// Only objects of a namespace. The right to read them is then needed only in the daemon's namespace.
    pub namespace: Option<String>,
    /// Only objects that a label selector matches.
    pub labels: Option<String>,
}

/// What a watch must hold: which objects, and which of their fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) scope: WatchScope,
    pub(super) fields: Fields,
}

/// A scope that depends on the viewpoint.
pub(super) type ScopeOf = Arc<dyn Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync>;

/// The wishes of all current users.
#[derive(Clone, Default)]
pub(super) struct Asked {
    next: u64,
    asks: BTreeMap<u64, Ask>,
}

/// The wish of one user.
#[derive(Clone)]
struct Ask {
    /// `None`: all objects.
    scope: Option<ScopeOf>,
    fields: Fields,
    need: Need,
}

/// What a user does without the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it waits, and so does the daemon's readiness.
    Role,
    /// All that needs no such objects.
    Feature,
}

impl Asked {
    /// Adds a wish for all objects. Returns its number for [`withdraw`](Self::withdraw).
    pub(super) fn whole(&mut self, fields: Fields, need: Need) -> u64 {
        self.note(Ask { scope: None, fields, need })
    }

    /// Adds a wish for the objects of a scope.
    pub(super) fn part(&mut self, scope: ScopeOf, need: Need) -> u64 {
        self.note(Ask { scope: Some(scope), fields: Fields::NONE, need })
    }

    /// Whether a user does nothing without the kind.
    pub(super) fn is_needed(&self) -> bool {
        self.asks.values().any(|ask| ask.need == Need::Role)
    }

    fn note(&mut self, ask: Ask) -> u64 {
        self.next += 1;
        self.asks.insert(self.next, ask);
        self.next
    }

    /// Removes a wish.
    pub(super) fn withdraw(&mut self, ask: u64) {
        self.asks.remove(&ask);
    }

    /// Whether there are no wishes.
    pub(super) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    /// The scope that serves all wishes: their scope if they agree, otherwise all objects. `None`: there are no wishes.
    pub(super) fn scope(&self, view: &Viewpoint<'_>) -> Option<WatchScope> {
        let of = |ask: &Ask| ask.scope.as_ref().map_or_else(WatchScope::default, |scope| scope(view));
        let mut scopes = self.asks.values().map(of);
        let first = scopes.next()?;
        Some(if scopes.all(|scope| scope == first) { first } else { WatchScope::default() })
    }

    /// The same, with all fields of any wish.
    pub(super) fn wish(&self, view: &Viewpoint<'_>) -> Option<Wish> {
        let fields = self.asks.values().fold(Fields::NONE, |fields, ask| fields | ask.fields);
        self.scope(view).map(|scope| Wish { scope, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_different_parts_gets_the_whole() {
        let part = |labels: &'static str| -> ScopeOf {
            Arc::new(move |view| WatchScope {
                namespace: view.namespace.map(str::to_owned),
                labels: Some(format!("{labels}={}", view.driver)),
            })
        };
        let view = Viewpoint { namespace: Some("kube"), ..Viewpoint::of("demo") };
        let mut asked = Asked::default();
        let narrow = WatchScope { namespace: Some("kube".into()), labels: Some("a=demo".into()) };
        assert_eq!(asked.scope(&view), None);
        let first = asked.part(part("a"), Need::Role);
        let second = asked.part(part("a"), Need::Role);
        assert_eq!(asked.scope(&view), Some(narrow.clone()));
        let mut differing = asked.clone();
        differing.part(part("b"), Need::Role);
        assert_eq!(differing.scope(&view), Some(WatchScope::default()));
        let whole = asked.whole(Fields::NONE, Need::Role);
        assert_eq!(asked.scope(&view), Some(WatchScope::default()));
        // Who goes takes nothing from the others.
        asked.withdraw(whole);
        asked.withdraw(first);
        assert_eq!(asked.scope(&view), Some(narrow));
        asked.withdraw(second);
        assert_eq!(asked.scope(&view), None);
        assert!(asked.is_empty());
    }

    #[test]
    fn a_kind_is_needed_as_long_as_one_user_does_nothing_without_it() {
        let mut asked = Asked::default();
        assert!(!asked.is_needed());
        asked.whole(Fields::NONE, Need::Feature);
        assert!(!asked.is_needed());
        let role = asked.whole(Fields::NONE, Need::Role);
        assert!(asked.is_needed());
        asked.withdraw(role);
        assert!(!asked.is_needed());
    }

    #[test]
    fn each_field_is_held_that_somebody_asks_for() {
        let view = Viewpoint::of("demo");
        let fields = |asked: &Asked| asked.wish(&view).map(|wish| wish.fields);
        let mut asked = Asked::default();
        assert_eq!(fields(&asked), None);
        asked.whole(Fields::NONE, Need::Role);
        assert_eq!(fields(&asked), Some(Fields::NONE));
        let resizer = asked.whole(Fields::RESIZE, Need::Role);
        assert_eq!(fields(&asked), Some(Fields::RESIZE));
        asked.withdraw(resizer);
        assert_eq!(fields(&asked), Some(Fields::NONE));
    }
}
