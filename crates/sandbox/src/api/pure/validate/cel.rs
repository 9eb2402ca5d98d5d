//! The few words of CEL in which the definitions of installed kinds say their rules.
//!
//! ```text
//!   or      := and ("||" and)*            has     := "has(" path ")"      there, and not null
//!   and     := not ("&&" not)*            compare := value ("==" | ">") value
//!   not     := "!" not | "(" or ")" | has | compare
//!   value   := "size(" path ")" | path | number           path := ("self" | "oldSelf") ("." member)*
//! ```
//!
//! A rule that says more than that does not hold, so that a new one is noticed by its first test.

use serde_json::Value;

/// Whether a value keeps a rule; `old` is the value before.
pub(super) fn holds(rule: &str, this: &Value, old: Option<&Value>) -> bool {
    let words = words(rule);
    let mut reader = Reader { words: &words, this, old };
    let held = reader.any();
    held == Some(true) && reader.words.is_empty()
}

/// Names, numbers and signs.
fn words(rule: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = rule.trim_start();
    while let Some(first) = rest.chars().next() {
        let name = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let sign = if ["||", "&&", "=="].iter().any(|it| rest.starts_with(it)) { 2 } else { first.len_utf8() };
        let (word, after) = rest.split_at(name.max(if name == 0 { sign } else { 0 }));
        words.push(word);
        rest = after.trim_start();
    }
    words
}

struct Reader<'a> {
    words: &'a [&'a str],
    this: &'a Value,
    old: Option<&'a Value>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, word: &str) -> Option<()> {
        let (first, rest) = self.words.split_first()?;
        if *first != word {
            return None;
        }
        self.words = rest;
        Some(())
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn any(&mut self) -> Option<bool> {
        let mut held = self.all()?;
        while self.take("||").is_some() {
            held |= self.all()?;
        }
        Some(held)
    }

    fn all(&mut self) -> Option<bool> {
        let mut held = self.not()?;
        while self.take("&&").is_some() {
            held &= self.not()?;
        }
        Some(held)
    }

    fn not(&mut self) -> Option<bool> {
        if self.take("!").is_some() {
            return Some(!self.not()?);
        }
        if self.take("(").is_some() {
            let held = self.any()?;
            self.take(")")?;
            return Some(held);
        }
        if self.words.first() == Some(&"has") {
            self.take("has")?;
            return Some(!self.path_in_brackets()?.is_null());
        }
        let first = self.value()?;
        match self.next()? {
            "==" => Some(first == self.value()?),
            ">" => Some(first.as_u64()? > self.value()?.as_u64()?),
            _ => None,
        }
    }

    fn value(&mut self) -> Option<Value> {
        if self.take("size").is_some() {
            let size = match self.path_in_brackets()? {
                Value::String(text) => text.chars().count(),
                Value::Array(items) => items.len(),
                Value::Object(members) => members.len(),
                _ => return None,
            };
            return Some(size.into());
        }
        match self.words.first()?.parse::<u64>() {
            Ok(number) => self.next().map(|_| number.into()),
            Err(_) => self.path(),
        }
    }

    fn path_in_brackets(&mut self) -> Option<Value> {
        self.take("(")?;
        let value = self.path()?;
        self.take(")")?;
        Some(value)
    }

    /// The value at a path; null if there is none.
    fn path(&mut self) -> Option<Value> {
        let mut at = match self.next()? {
            "self" => Some(self.this),
            "oldSelf" => self.old,
            _ => return None,
        };
        while self.take(".").is_some() {
            // Members that are called as words of the language are written between underscores.
            let member = self.next()?;
            let member = member.strip_prefix("__").and_then(|it| it.strip_suffix("__")).unwrap_or(member);
            at = at.and_then(|it| it.get(member));
        }
        Some(at.cloned().unwrap_or(Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_are_read_as_they_are_meant() {
        let (this, old) = (json!({"a": "x", "namespace": "n"}), json!({"a": "y", "b": null}));
        let cases = [
            ("self == oldSelf", false),
            ("self.a == oldSelf.a", false),
            ("!has(oldSelf.a) || has(self.a)", true),
            ("!has(oldSelf.b) || has(self.b)", true),
            ("has(self.a) && has(self.__namespace__)", true),
            ("(has(self.a) && !has(self.b)) || (!has(self.a) && has(self.b))", true),
            ("(has(self.a) && has(self.b)) || (!has(self.a) && has(self.b))", false),
            ("size(self.a) > 0", true),
            ("size(self.a) > 1", false),
            ("!(size(self.a) > 1)", true),
        ];
        for (rule, held) in cases {
            assert_eq!(holds(rule, &this, Some(&old)), held, "{rule}");
        }
    }

    #[test]
    fn a_rule_that_says_more_than_can_be_read_does_not_hold() {
        for rule in ["", "self.all(x, x > 0)", "has(self.a) has(self.a)", "size(self) > ", "self"] {
            assert!(!holds(rule, &json!({"a": "x"}), None), "{rule}");
        }
    }
}
