//! Seeded mutations of JSON bodies: the scanner against serde_json, and the policy's edits. 20,000 each by default, `SANDUK_FUZZ=N`
//! for N, `SANDUK_SEED=N` for another seed.

#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "support/mutate.rs"]
mod mutate;

use mutate::rounds;
use sanduk::catalog::providers::{self, ChatCap, Protocol};
use sanduk::relay::policy::{self, Rules};
use sanduk::relay::start::Grants;
use sanduk::wire::json::{Bad, Scanner};
use serde_json::Value;
use std::cell::Cell;
use std::sync::LazyLock;

const SEEDS: &[&str] = &[
    r#"{"model":"m","max_tokens":64000,"stream":true,"messages":[{"role":"user","content":"hé\n\ud83d\ude00\u0000"}],"x":-0.5e+7}"#,
    r#"{"stream_options":{"a":1,"include_usage":false},"n":1,"tools":[{"type":"a","model":"m"},{}],"models":["m"],"max_completion_tokens":null,"stream":true}"#,
    r#" { "thinking" : {"budget_tokens":9999,"type":"x"} , "max_tokens":9 , "a":[true,false,null,[[],{}]] } "#,
    r#"[1,2.5,-3e-2,"\ud800","a/b\/c",{"k":{"k":{"k":[]}}},{"":0,"\u0061":1,"a ":2}]"#,
];

const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\\u0061",
    b"0",
    b"1",
    b"-",
    b".",
    b"e",
    b"E",
    b"+",
    b"null",
    b"true",
    b"false",
    b" ",
    b"\n",
    b"\t",
    b"\0",
    b"\x1f",
    b"\x7f",
    b"\xc3\xa9",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\xed\xa0\x80",
    b"\"model\":",
    b"\"max_tokens\":5000",
    b"\"stream\":true",
    b"\"stream_options\":null",
    b"1e999",
    b"NaN",
    b"[[[[",
    b"\"a\":1,",
    b"/",
    b"#",
    b"'",
];

fn scan(text: &[u8]) -> Result<(), Bad> {
    let mut scanner = Scanner::new(text)?;
    while scanner.advance()?.is_some() {}
    Ok(())
}

/// A lone surrogate is valid grammar, which serde_json does not read; nor does it read numbers beyond f64, or 128 levels.
fn beyond_serde(why: &str) -> bool {
    ["surrogate", "number out of range", "recursion limit", "hex escape"].iter().any(|w| why.contains(w))
}

/// Ours and serde_json agree on every mutated text, except where ours is stricter or wider on purpose.
#[test]
fn scanner_against_serde_json() {
    let (both, neither) = (Cell::new(0u64), Cell::new(0u64));
    mutate::run("scanner", SEEDS, WORDS, |_, text| {
        let serde = serde_json::from_slice::<Value>(text);
        match (scan(text), serde) {
            (Ok(()), Ok(_)) => both.set(both.get() + 1),
            (Err(_), Err(_)) => neither.set(neither.get() + 1),
            (Ok(()), Err(why)) => assert!(beyond_serde(&why.to_string()), "only ours takes it: {why}"),
            (Err(bad), Ok(_)) => {
                let stricter = bad.why.contains("twice") || bad.why.contains("deeply");
                assert!(stricter, "only serde takes it: {bad:?}");
            }
        }
    });
    println!("both {}, neither {}", both.get(), neither.get());
    let least = rounds() / 100;
    assert!(both.get() > least && neither.get() > least, "the mutations are too wild or too tame");
}

/// A mutated body that passes the policy reads upstream as it did, but for the judged places.
#[test]
fn edited_bodies_read_the_same() {
    let edited = Cell::new(0u64);
    mutate::run("policy", SEEDS, WORDS, |_, text| {
        for protocol in [Protocol::Chat, Protocol::Messages, Protocol::Responses, Protocol::CountTokens] {
            edited.set(edited.get() + u64::from(edits_are_the_only_change(protocol, text)));
        }
    });
    println!("edited {}", edited.get());
    assert!(edited.get() > rounds() / 100, "too few bodies were edited");
}

/// Whether there was anything to edit.
fn edits_are_the_only_change(protocol: Protocol, text: &[u8]) -> bool {
    let grants = Grants { max_tokens_cap: Some(1000), ..Grants::default() };
    let free = policy::body(protocol, text, &grants, &rules(true));
    // The lists only ever take away.
    let listed = policy::body(protocol, text, &Grants { sealed: true, ..grants.clone() }, tables(protocol));
    assert!(listed.is_err() || free.is_ok(), "{}", text.escape_ascii());
    let Ok(judged) = free else { return false };
    let upstream = policy::parts(text, &judged.edits).concat();
    assert!(scan(&upstream).is_ok(), "what goes upstream is no JSON: {}", upstream.escape_ascii());
    let Ok(mut before) = serde_json::from_slice::<Value>(text) else { return false };
    let mut after: Value = serde_json::from_slice(&upstream).unwrap();
    if protocol == Protocol::Chat && judged.streamed {
        assert_eq!(after["stream_options"]["include_usage"], true);
    }
    let mut members = vec!["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"];
    for name in &members {
        let bounded = after[name].as_u64().is_none_or(|n| n <= 1000);
        assert!(bounded || protocol == Protocol::CountTokens, "{name}");
    }
    // Judged in their depths: tests/policy.rs has them byte for byte.
    members.extend(["thinking", "tools", "fallbacks"]);
    if protocol == Protocol::Chat {
        members.push("stream_options");
    }
    for name in members {
        before.as_object_mut().unwrap().remove(name);
        after.as_object_mut().unwrap().remove(name);
    }
    assert_eq!(before, after);
    !judged.edits.is_empty()
}

/// No tables.
fn rules(include_usage: bool) -> Rules {
    Rules {
        include_usage,
        chat_cap: ChatCap::MaxCompletionTokens,
        hosted_models: Vec::new(),
        fields: Vec::new(),
    }
}

/// Of a provider that has the protocol.
fn tables(protocol: Protocol) -> &'static Rules {
    static BOTH: LazyLock<[Rules; 2]> = LazyLock::new(|| {
        ["anthropic", "openai"].map(|name| Rules::of(&providers::shipped(name).unwrap()).unwrap())
    });
    let [anthropic, openai] = &*BOTH;
    if matches!(protocol, Protocol::Messages | Protocol::CountTokens) { anthropic } else { openai }
}
