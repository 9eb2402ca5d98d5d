//! Which version of a kind is read, if the API has several.

use super::watch_error::Failure;

/// Which version of a kind is read.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub(super) version: usize,
    /// How many versions in a row could not be read.
    pub(super) unread: usize,
    /// Why the first of them could not be read, unless the server lacks it.
    pub(super) earlier: Option<Failure>,
    /// A better version is there, and could not be read.
    is_makeshift: bool,
}

impl Pass {
    /// The version of this pass could not be read: the next one is tried.
    pub(super) fn next(&mut self, versions: usize, failure: Failure) {
        self.unread += 1;
        self.version = (self.version + 1) % versions.max(1);
        if self.earlier.is_none() && !failure.is_unserved() {
            (self.earlier, self.is_makeshift) = (Some(failure), true);
        }
    }

    /// The list has been made, or given up. The next one tries the better version again.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_makeshift) {
            self.version = 0;
        }
        (self.unread, self.earlier) = (0, None);
    }
}
