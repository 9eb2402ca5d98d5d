//! Applies the outcome of a write. Pure.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use super::segment::{Retry, UnderWay};
use super::{Commit, JournalError, Key, Ledger, MOST, Outcome, Phase};
use crate::cluster::{ApiError, ApiErrorKind};
use crate::election::TermOver;
use crate::journal::format::Version;

impl<W> Ledger<W> {
    /// The write to segment `n` has ended.
    pub(in crate::journal) fn written(&mut self, n: usize, outcome: Outcome, now: Duration) {
        let Some(UnderWay::Write { commit, .. }) = self.segments[n].under_way.take() else { return };
        self.write_error = match &outcome {
            Outcome::Refused(error) => Some(JournalError::Refused(error.clone())),
            Outcome::Lost(error) => Some(JournalError::Unconfirmed(error.clone())),
            Outcome::Stored(_) | Outcome::Conflict(_) | Outcome::NotSent => None,
        };
        match outcome {
            Outcome::Stored(object) if commit.basis.is_none() => self.created(&commit, object, now),
            Outcome::Stored(object) => self.stored(&commit, object, now),
            Outcome::Conflict(error) => {
                self.unconfirmed(&commit, &error, true, now);
                for (key, _) in &commit.set {
                    self.requeue(key, n);
                }
            }
            Outcome::Refused(error) => {
                self.unconfirmed(&commit, &error, false, now);
                // The API may accept the other entries of the batch.
                let is_of_content = matches!(error.kind(), ApiErrorKind::Invalid | ApiErrorKind::Forbidden);
                if is_of_content && commit.basis.is_some() && commit.set.len() > 1 {
                    self.most = commit.set.len() / 2;
                }
                self.fail_all(&commit, &JournalError::Refused(error), now);
            }
            Outcome::Lost(error) => {
                self.unconfirmed(&commit, &error, true, now);
                self.fail_all(&commit, &JournalError::Unconfirmed(error), now);
            }
            Outcome::NotSent => self.close(&JournalError::TermOver(TermOver)),
        }
    }

    /// The object exists, without entries: now they can name its uid.
    fn created(&mut self, commit: &Commit, object: Version, now: Duration) {
        let segment = &mut self.segments[commit.segment];
        segment.settle_attempts(false, now);
        segment.object = Some(object);
        segment.looked_at = now;
        segment.writing = Retry::default();
        for (key, _) in &commit.set {
            self.requeue(key, commit.segment);
        }
    }

    fn stored(&mut self, commit: &Commit, object: Version, now: Duration) {
        if !commit.set.is_empty() {
            self.most = self.most.saturating_mul(2).min(MOST);
        }
        let segment = &mut self.segments[commit.segment];
        // A write that changes nothing leaves the version, and with it the basis of earlier writes.
        let is_unchanged = segment.object.as_ref() == Some(&object);
        segment.settle_attempts(is_unchanged, now);
        segment.object = Some(object);
        segment.looked_at = now;
        segment.writing = Retry::default();
        for key in &commit.remove {
            segment.copies.remove(key);
        }
        for (key, text) in &commit.set {
            segment.add_copy(key, text);
        }
        for (key, text) in &commit.set {
            self.confirm(key, text, commit.segment);
            if let Some(entry) = self.entries.get_mut(key) {
                entry.durable_since.get_or_insert(now);
                let basis = commit.basis.as_ref().map(|basis| basis.version.clone());
                entry.since = entry.since.take().or(basis);
            }
        }
        for key in commit.remove.iter().chain(commit.set.iter().map(|(key, _)| key)) {
            self.refresh(key, now);
        }
    }

    /// Segment `n` holds this text.
    pub(super) fn confirm(&mut self, key: &Key, text: &Arc<str>, n: usize) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_same = entry.text == *text;
        match entry.home {
            Some(home) if home == n && is_same => self.set_durable(key),
            // Another content was recorded meanwhile, and no caller waits for this one. Without an earlier content, the
            // request of this one was never sent.
            Some(home) if home == n => {
                entry.confirmed = entry.confirmed.take().map(|_| Arc::clone(text));
            }
            None if is_same => {
                self.dequeue(key);
                self.set_home(key, Some(n));
                self.set_durable(key);
            }
            // The entry was removed and recorded again meanwhile: this copy belongs to the first recording.
            _ => {}
        }
    }

    /// Notes a write that the API did not confirm.
    fn unconfirmed(&mut self, commit: &Commit, error: &ApiError, is_in_doubt: bool, now: Duration) {
        let segment = &mut self.segments[commit.segment];
        segment.attempt(commit, now);
        segment.in_doubt |= is_in_doubt;
        segment.writing.fail(error, now);
        // The read that must follow does not wait for the back-off of earlier reads.
        segment.reading.at = segment.reading.at.min(now);
    }

    /// The entries of a commit are not durable, unless another text of them was recorded meanwhile.
    fn fail_all(&mut self, commit: &Commit, error: &JournalError, now: Duration) {
        for (key, _) in &commit.set {
            let is_here = |entry: &&Entry<W>| entry.home == Some(commit.segment);
            match self.entries.get(key).filter(is_here).map(|entry| entry.phase) {
                Some(Phase::Writing) => self.fail(key, error, now),
                Some(Phase::Pending(_)) => self.requeue(key, commit.segment),
                _ => {}
            }
        }
    }

    /// Makes an entry pending again after a failed write to segment `n`. An entry without a confirmed text may go to any
    /// segment.
    fn requeue(&mut self, key: &Key, n: usize) {
        let is_meant = |entry: &&Entry<W>| entry.home == Some(n) && entry.phase != Phase::Durable;
        let Some(entry) = self.entries.get(key).filter(is_meant) else { return };
        let is_placed = entry.confirmed.is_some();
        self.dequeue(key);
        if !is_placed {
            self.set_home(key, None);
        }
        self.enqueue(key);
    }
}
