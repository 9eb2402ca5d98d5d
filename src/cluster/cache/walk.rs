//! A walk over all objects of a cache that unpacks few of them at a time: most may be another driver's, and an unpacked one takes
//! several times the memory.

use std::sync::Arc;

use super::{Cache, PORTION};
use crate::cluster::fanout::Place;
use crate::cluster::objects::Cached;

/// The objects of a cache, one after the other.
#[derive(Debug)]
pub struct Each<K: Cached> {
    cache: Cache<K>,
    portion: std::vec::IntoIter<Arc<K>>,
    place: Option<Place>,
}

impl<K: Cached> Cache<K> {
    /// Every object.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.each().collect()
    }

    /// Every object. One that comes, goes or changes during the walk may be missing, or be there twice.
    pub fn each(&self) -> Each<K> {
        Each { cache: self.clone(), portion: Vec::new().into_iter(), place: Some(Place::default()) }
    }
}

impl<K: Cached> Iterator for Each<K> {
    type Item = Arc<K>;

    fn next(&mut self) -> Option<Arc<K>> {
        if let Some(object) = self.portion.next() {
            return Some(object);
        }
        let place = self.place.take()?;
        let (portion, place) = self.cache.read(|store| store.page(&place, PORTION));
        (self.portion, self.place) = (portion.into_iter(), place);
        self.portion.next()
    }
}
