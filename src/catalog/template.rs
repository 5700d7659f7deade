//! Templates of agent files: plain substitution in argv, environment, files and standard input, `{word}` by its value and `{word:json}`
//! by a JSON string with its quotes. No logic. Braces around anything but a lower-case word are literal. Called by `agents`.

use std::collections::BTreeMap;

/// What the words stand for in one turn.
pub struct Values(BTreeMap<String, String>);

impl Values {
    /// None yet.
    pub fn new() -> Values {
        Values(BTreeMap::new())
    }

    /// A word's value.
    pub fn set(&mut self, word: &str, value: &str) {
        self.0.insert(word.to_string(), value.to_string());
    }

    /// One pass: a value is never searched for templates itself.
    pub fn fill(&self, template: &str) -> String {
        let of = |word: &str| self.0.get(word).map_or("", String::as_str);
        let mut out = String::new();
        for piece in pieces(template) {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                Piece::Word(word, false) => out.push_str(of(word)),
                Piece::Word(word, true) => out.push_str(&serde_json::Value::from(of(word)).to_string()),
            }
        }
        out
    }

    /// Named templates: variables, or files.
    pub fn pairs(&self, templates: &[(String, String)]) -> Vec<(String, String)> {
        templates.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect()
    }
}

impl Default for Values {
    fn default() -> Values {
        Values::new()
    }
}

/// Refuses a word that is not `known`, and one that is but has no value here.
pub fn check<'a>(
    templates: impl Iterator<Item = &'a str>,
    known: &[&str],
    given: &[&str],
) -> Result<(), String> {
    for piece in templates.flat_map(pieces) {
        let Piece::Word(word, _) = piece else { continue };
        if !known.contains(&word) {
            return Err(format!("the template {{{word}}} is unknown"));
        }
        if !given.contains(&word) {
            return Err(format!("{{{word}}} stands where its flag may be missing"));
        }
    }
    Ok(())
}

enum Piece<'a> {
    Literal(&'a str),
    /// The word, and whether as JSON.
    Word(&'a str, bool),
}

fn pieces(template: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        out.push(Piece::Literal(before));
        let inner = after.split_once('}').map(|(inner, left)| (inner.strip_suffix(":json"), inner, left));
        match inner {
            Some((json, inner, left)) if is_word(json.unwrap_or(inner)) => {
                out.push(Piece::Word(json.unwrap_or(inner), json.is_some()));
                rest = left;
            }
            _ => {
                out.push(Piece::Literal("{"));
                rest = after;
            }
        }
    }
    out.push(Piece::Literal(rest));
    out
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}
