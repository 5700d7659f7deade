//! One line about a request body for a person who keeps bodies. Reads what it finds and fails at nothing: a field that is not there or
//! is something else is `-`, or 0 where it is a count. Pure.

use crate::limits;
use crate::wire::json::{Kind, Scanner, Token};
use crate::wire::text;

#[derive(Default)]
struct Words {
    model: Option<String>,
    max_tokens: Option<String>,
    effort: Option<String>,
    messages: u64,
    tools: u64,
    stream: bool,
}

/// `model=… max_tokens=… effort=… msgs=N tools=N stream=true|false`, escaped.
pub fn words(body: &[u8]) -> String {
    let mut w = Words::default();
    if let Ok(mut scanner) = Scanner::new(body) {
        let mut list = false;
        while let Ok(Some(token)) = scanner.advance() {
            let of = scanner.member_of(0).unwrap_or_default();
            match (token.kind, token.depth) {
                (Kind::Name | Kind::ObjectEnd | Kind::ArrayEnd, _) => {}
                (kind, 1) => {
                    list = kind == Kind::Array;
                    w.member(of, &token, body);
                }
                (_, 2) if list && matches!(of, b"messages" | b"input") => {
                    w.messages = w.messages.saturating_add(1)
                }
                (_, 2) if list && of == b"tools" => w.tools = w.tools.saturating_add(1),
                (Kind::String, 2)
                    if matches!(of, b"output_config" | b"reasoning")
                        && scanner.member_of(1) == Some(b"effort") =>
                {
                    w.effort = Some(shown(&token, body));
                }
                _ => {}
            }
        }
    }
    let or = |word: Option<String>| word.unwrap_or_else(|| "-".into());
    let (model, max, effort) = (or(w.model), or(w.max_tokens), or(w.effort));
    format!(
        "model={model} max_tokens={max} effort={effort} msgs={} tools={} stream={}",
        w.messages, w.tools, w.stream
    )
}

impl Words {
    fn member(&mut self, name: &[u8], token: &Token, body: &[u8]) {
        match (name, token.kind) {
            (b"model", Kind::String) => self.model = Some(shown(token, body)),
            (b"max_tokens" | b"max_completion_tokens" | b"max_output_tokens", Kind::Number) => {
                self.max_tokens = Some(shown(token, body));
            }
            (b"reasoning_effort", Kind::String) => self.effort = Some(shown(token, body)),
            (b"stream", Kind::True) => self.stream = true,
            _ => {}
        }
    }
}

fn shown(token: &Token, body: &[u8]) -> String {
    let raw = body.get(token.span.clone()).unwrap_or_default();
    let text = String::from_utf8_lossy(raw);
    text::short(text.trim_matches('"'), limits::MODEL_CHARS)
}

#[cfg(test)]
mod tests {
    use super::words;

    /// The tool this one replaces broke on the last five.
    #[test]
    fn trap_58_the_digest_line_never_fails() {
        let nothing = "model=- max_tokens=- effort=- msgs=0 tools=0 stream=false";
        for (body, said) in [
            (
                r#"{"model":"m","max_tokens":5,"output_config":{"effort":"high"},"messages":[{"a":[1,2]},2],"tools":[{}],"stream":true}"#,
                "model=m max_tokens=5 effort=high msgs=2 tools=1 stream=true",
            ),
            (
                r#"{"input":["a"],"max_output_tokens":7,"reasoning":{"effort":"low"}}"#,
                "model=- max_tokens=7 effort=low msgs=1 tools=0 stream=false",
            ),
            (r#"{"messages":null,"tools":5,"output_config":null,"stream":"yes"}"#, nothing),
            (r#"{"messages":{"a":1},"tools":{"b":[2]}}"#, nothing),
            ("[1]", nothing),
            ("null", nothing),
            ("\"s\"", nothing),
            ("{\"model\":", nothing),
            ("", nothing),
        ] {
            assert_eq!(words(body.as_bytes()), said, "{body}");
        }
        assert!(words("{\"model\":\"\u{9b}31m\"}".as_bytes()).starts_with("model=\\u{9b}31m "));
        assert_eq!(words(&[0xff, 0]), nothing);
    }
}
