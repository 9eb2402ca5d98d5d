//! What a report tells besides the flags: each note with what it asks of its reader, and none twice. Pure.

use serde::Serialize;

/// What a note asks of its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Weight {
    /// Without it the daemon, or something beside it, does not work.
    MustDo,
    /// Something is different from now on: is it what the reader wants?
    Check,
    /// Nothing has to be done.
    GoodToKnow,
}

impl Weight {
    /// All, the heaviest first.
    pub const ALL: [Self; 3] = [Self::MustDo, Self::Check, Self::GoodToKnow];

    /// The heading of such notes.
    pub fn title(self) -> &'static str {
        match self {
            Self::MustDo => "must do",
            Self::Check => "check",
            Self::GoodToKnow => "good to know",
        }
    }
}

/// One note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// What it asks.
    pub weight: Weight,
    /// What it says.
    pub text: String,
}

/// The notes, in the order in which they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Notes(Vec<Note>);

impl Notes {
    /// Adds a note, unless it is there already.
    pub fn add(&mut self, weight: Weight, text: impl Into<String>) {
        let note = Note { weight, text: text.into() };
        if !self.0.iter().any(|there| there.text == note.text) {
            self.0.push(note);
        }
    }

    /// Something has to be done.
    pub fn must(&mut self, text: impl Into<String>) {
        self.add(Weight::MustDo, text);
    }

    /// Something has to be looked at.
    pub fn check(&mut self, text: impl Into<String>) {
        self.add(Weight::Check, text);
    }

    /// Nothing has to be done.
    pub fn know(&mut self, text: impl Into<String>) {
        self.add(Weight::GoodToKnow, text);
    }

    /// Adds all of these.
    pub fn append(&mut self, others: Self) {
        for Note { weight, text } in others.0 {
            self.add(weight, text);
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Note> {
        self.0.iter()
    }

    /// What they say.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|note| note.text.as_str())
    }

    /// What those of a weight say.
    pub fn of(&self, weight: Weight) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |note| note.weight == weight).map(|note| note.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_told_once_and_by_its_weight() {
        let mut notes = Notes::default();
        notes.know("a");
        notes.must("b");
        notes.check("a");
        let mut others = Notes::default();
        others.must("b");
        others.check("c");
        notes.append(others);
        assert_eq!(notes.texts().collect::<Vec<_>>(), ["a", "b", "c"]);
        let told = Weight::ALL.map(|weight| (weight.title(), notes.of(weight).collect::<Vec<_>>()));
        assert_eq!(told, [("must do", vec!["b"]), ("check", vec!["c"]), ("good to know", vec!["a"])]);
    }
}
