//! How much of a kind is watched. Pure.
//!
//! Most kinds are watched whole. Of a kind whose objects each daemon makes for itself, a role asks for its own: that is
//! said as a function of where the daemon runs, because roles load before anybody knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::objects::Fields;

/// From where a daemon looks at the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewpoint<'a> {
    /// The driver.
    pub driver: &'a str,
    /// The namespace that the daemon runs in.
    pub namespace: Option<&'a str>,
    /// The node that it runs on, if it was told.
    pub node: Option<&'a str>,
}

impl<'a> Viewpoint<'a> {
    /// The driver's, wherever it is.
    pub fn of(driver: &'a str) -> Self {
        Self { driver, namespace: None, node: None }
    }
}

/// Which objects of a kind are watched: by default all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// Only those of a namespace. The right to read them is then asked for in the daemon's namespace alone.
    pub namespace: Option<String>,
    /// Only those that a label selector picks.
    pub labels: Option<String>,
}

/// What a watch is to hold: of which objects, and how much of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) scope: WatchScope,
    pub(super) fields: Fields,
}

/// A scope that depends on the viewpoint.
pub(super) type ScopeOf = Arc<dyn Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync>;

/// What was asked for, by all who asked and still do.
#[derive(Clone, Default)]
pub(super) struct Asked {
    next: u64,
    asks: BTreeMap<u64, Ask>,
}

/// What one of them asked for.
#[derive(Clone)]
struct Ask {
    /// `None`: all objects.
    scope: Option<ScopeOf>,
    fields: Fields,
}

impl Asked {
    /// Somebody wants all objects. Returns the number to [`withdraw`](Self::withdraw) it by.
    pub(super) fn whole(&mut self, fields: Fields) -> u64 {
        self.note(Ask { scope: None, fields })
    }

    /// Somebody wants those of a scope.
    pub(super) fn part(&mut self, scope: ScopeOf) -> u64 {
        self.note(Ask { scope: Some(scope), fields: Fields::NONE })
    }

    fn note(&mut self, ask: Ask) -> u64 {
        self.next += 1;
        self.asks.insert(self.next, ask);
        self.next
    }

    /// Somebody wants nothing any more.
    pub(super) fn withdraw(&mut self, ask: u64) {
        self.asks.remove(&ask);
    }

    /// Whether anybody wants anything.
    pub(super) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    /// The one scope that serves all: theirs if they agree, everything if they do not. `None`: nobody asks.
    pub(super) fn scope(&self, view: &Viewpoint<'_>) -> Option<WatchScope> {
        let of = |ask: &Ask| ask.scope.as_ref().map_or_else(WatchScope::default, |scope| scope(view));
        let mut scopes = self.asks.values().map(of);
        let first = scopes.next()?;
        Some(if scopes.all(|scope| scope == first) { first } else { WatchScope::default() })
    }

    /// The same, with all the fields that any of them wants.
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
        let first = asked.part(part("a"));
        let second = asked.part(part("a"));
        assert_eq!(asked.scope(&view), Some(narrow.clone()));
        let mut differing = asked.clone();
        differing.part(part("b"));
        assert_eq!(differing.scope(&view), Some(WatchScope::default()));
        let whole = asked.whole(Fields::NONE);
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
    fn each_field_is_held_that_somebody_asks_for() {
        let view = Viewpoint::of("demo");
        let fields = |asked: &Asked| asked.wish(&view).map(|wish| wish.fields);
        let mut asked = Asked::default();
        assert_eq!(fields(&asked), None);
        asked.whole(Fields::NONE);
        assert_eq!(fields(&asked), Some(Fields::NONE));
        let resizer = asked.whole(Fields::RESIZE);
        assert_eq!(fields(&asked), Some(Fields::RESIZE));
        asked.withdraw(resizer);
        assert_eq!(fields(&asked), Some(Fields::NONE));
    }
}
