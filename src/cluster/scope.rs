//! How much of a kind is watched.
//!
//! Most kinds are watched whole. Of a kind whose objects each daemon makes for itself, a role asks for its own: that is
//! said as a function of where the daemon runs, because roles load before anybody knows.

use std::sync::Arc;

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

/// A scope that depends on the viewpoint.
pub(super) type ScopeOf = Arc<dyn Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync>;

/// What was asked for, by all who asked.
#[derive(Clone, Default)]
pub(super) struct Asked {
    whole: bool,
    scopes: Vec<ScopeOf>,
}

impl Asked {
    /// Somebody wants all objects.
    pub(super) fn whole(&mut self) {
        self.whole = true;
    }

    /// Somebody wants those of a scope.
    pub(super) fn part(&mut self, scope: ScopeOf) {
        self.scopes.push(scope);
    }

    /// The one scope that serves all: theirs if they agree, everything if they do not.
    pub(super) fn scope(&self, view: &Viewpoint<'_>) -> WatchScope {
        let mut scopes = self.scopes.iter().map(|scope| scope(view));
        match scopes.next() {
            Some(first) if !self.whole && scopes.all(|scope| scope == first) => first,
            _ => WatchScope::default(),
        }
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
        assert_eq!(asked.scope(&view), WatchScope::default());
        asked.part(part("a"));
        asked.part(part("a"));
        assert_eq!(asked.scope(&view), WatchScope { namespace: Some("kube".into()), labels: Some("a=demo".into()) });
        let mut differing = asked.clone();
        differing.part(part("b"));
        assert_eq!(differing.scope(&view), WatchScope::default());
        asked.whole();
        assert_eq!(asked.scope(&view), WatchScope::default());
    }
}
