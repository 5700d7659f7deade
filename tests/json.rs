//! The JSON scanner against the standard's corners; mutated bodies are in json_fuzz.rs. `SANDUK_CORPORA=DIR` runs DIR/json
//! (JSONTestSuite) too.

#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

use sanduk::catalog::providers::{self, ChatCap, Protocol};
use sanduk::limits::JSON_DEPTH;
use sanduk::relay::policy::{self, Rules};
use sanduk::relay::start::Grants;
use sanduk::wire::json::{Bad, Kind, Scanner, Step};
use sanduk::wire::json_text;

/// All tokens, or the first fault.
fn scan(text: &[u8]) -> Result<Vec<(Kind, usize)>, Bad> {
    let mut scanner = Scanner::new(text)?;
    let mut tokens = Vec::new();
    while let Some(token) = scanner.advance()? {
        tokens.push((token.kind, token.depth));
    }
    Ok(tokens)
}

fn ok(text: &str) -> bool {
    scan(text.as_bytes()).is_ok()
}

#[test]
fn tokens_kinds_and_depths() {
    use Kind::{Array, ArrayEnd, False, Name, Null, Number, Object, ObjectEnd, String, True};
    let tokens = scan(br#" {"a":[1,"x",{}], "b":{"c":null,"d":true,"e":false}} "#).unwrap();
    let want = [
        (Object, 0),
        (Name, 1),
        (Array, 1),
        (Number, 2),
        (String, 2),
        (Object, 2),
        (ObjectEnd, 2),
        (ArrayEnd, 1),
        (Name, 1),
        (Object, 1),
        (Name, 2),
        (Null, 2),
        (Name, 2),
        (True, 2),
        (Name, 2),
        (False, 2),
        (ObjectEnd, 1),
        (ObjectEnd, 0),
    ];
    assert_eq!(tokens, want);
}

#[test]
fn grammar_is_strict() {
    for good in [
        "1",
        "-0",
        "0.5e+10",
        "\"\"",
        "[]",
        "{}",
        "\t[ 1 , 2 ]\r\n",
        "\"\\ud800\"",
        "1e999",
        "\"\u{7f}\u{feff}\"",
        "{\"\":1}",
    ] {
        assert!(ok(good), "{good}");
    }
    let bad = [
        "",
        " ",
        "01",
        "-",
        "-a",
        "1.",
        ".5",
        "1e",
        "+1",
        "0x1",
        "NaN",
        "Infinity",
        "nul",
        "truex",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{,}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":}",
        "[",
        "{",
        "{\"a\"",
        "]",
        "}",
        "[}",
        "{]",
        "1 2",
        "{}{}",
        "\"\n\"",
        "\"\u{0}\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u123\"",
        "\"abc",
        "/**/1",
        "\u{feff}1",
        "1\u{a0}",
        "--1",
        "1e+",
        "\"\\",
    ];
    for text in bad {
        assert!(!ok(text), "{text:?}");
    }
    for bytes in
        [&b"\"\xff\""[..], b"\"\xed\xa0\x80\"", b"\"\xc0\xaf\"", b"\xff\xfe1\0", b"\"\xf4\x90\x80\x80\""]
    {
        assert!(scan(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn control_bytes_are_found_at_every_place_of_a_word() {
    for byte in 0..0x20u8 {
        for at in 0..20 {
            let mut text = vec![b'a'; 20];
            text[at] = byte;
            text.insert(0, b'"');
            text.push(b'"');
            assert_eq!(scan(&text).unwrap_err().at, at + 1, "byte {byte} at {at}");
        }
    }
    for byte in [0x20u8, 0x21, 0x23, 0x5b, 0x5d, 0x7f] {
        assert!(scan(&[&b"\"aaaaaaa"[..], &[byte; 9], b"\""].concat()).is_ok());
    }
    let text = "é".repeat(9) + "\u{10ffff}";
    assert!(ok(&format!("\"{text}\"")));
}

#[test]
fn depth_is_bounded_on_both_sides() {
    let nest = |n: usize| "[".repeat(n) + &"]".repeat(n);
    assert!(ok(&nest(JSON_DEPTH)));
    assert_eq!(scan(nest(JSON_DEPTH + 1).as_bytes()).unwrap_err().why, "nested too deeply");
    assert!(scan("[".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn duplicates_are_refused_decoded_at_every_depth() {
    let twice = [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"b":2,"\u0061":3}"#,
        r#"[{"x":{"\u0078":1,"x":2}}]"#,
        r#"{"":1,"":2}"#,
        r#"{"\ud83d\ude00":1,"😀":2}"#,
        r#"{"\ud800":1,"\uD800":2}"#,
        r#"{"a\/":1,"a/":2}"#,
        r#"{"a":{"b":1},"c":0,"a":1}"#,
    ];
    for text in twice {
        assert_eq!(
            scan(text.as_bytes()).unwrap_err().why,
            "a member name stands twice in one object",
            "{text}"
        );
    }
    let once = [
        r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#,
        r#"[{"a":1},{"a":1}]"#,
        r#"{"a":1,"A":2}"#,
        r#"{"\ud800":1,"\ufffd":2}"#,
        r#"{"\ud800":1,"\ud801":2}"#,
        r#"{"\u0000":1,"":2}"#,
    ];
    for text in once {
        assert!(ok(text), "{text}");
    }
    for n in [17usize, 100, 5000] {
        let members: Vec<String> = (0..n).map(|i| format!("\"k{i}\":{i}")).collect();
        assert!(ok(&format!("{{{}}}", members.join(","))));
        assert!(!ok(&format!("{{{},\"k\\u003{}\":0}}", members.join(","), 7)), "{n}");
    }
}

#[test]
fn a_body_of_names_takes_no_quadratic_time() {
    // Millions of names: over the limit, refused on the way. Just under it: sorted once.
    let body = |n: usize| {
        let mut text = b"{".to_vec();
        for i in 0..n {
            text.extend_from_slice(format!("\"{i:x}\":0,").as_bytes());
        }
        text.extend_from_slice(b"\"end\":0}");
        text
    };
    assert!(scan(&body(65_000)).is_ok());
    assert_eq!(scan(&body(300_000)).unwrap_err().why, "too many member names");
    // The same escaped name again and again.
    let same = [b"{".to_vec(), b"\"\\u0061\":0,".repeat(300_000), b"\"b\":0}".to_vec()].concat();
    assert!(scan(&same).is_err());
}

#[test]
fn paths_and_whole_spans() {
    let text = br#"{"tools":[{"type":"a"},{"\u0074ype":"b","x":{"type":"no"}}],"type":"no","model":"m"}"#;
    let mut scanner = Scanner::new(text).unwrap();
    let (mut types, mut model) = (Vec::new(), None);
    while let Some(token) = scanner.advance().unwrap() {
        if token.kind == Kind::String {
            let value = json_text::text(json_text::inside(text, &token.span)).into_owned();
            if scanner.at_path(&token, &[Step::Member("tools"), Step::Each, Step::Member("type")]) {
                types.push(value);
            } else if scanner.at_path(&token, &[Step::Member("model")]) {
                model = Some(value);
            }
        }
    }
    assert_eq!(types, ["a", "b"]);
    assert_eq!(model.as_deref(), Some("m"));

    let mut scanner = Scanner::new(text).unwrap();
    scanner.advance().unwrap();
    scanner.advance().unwrap();
    let open = scanner.advance().unwrap().unwrap();
    assert!(scanner.at_path(&open, &[Step::Member("tools")]));
    let span = scanner.whole(&open).unwrap();
    assert_eq!(&text[span], &br#"[{"type":"a"},{"\u0074ype":"b","x":{"type":"no"}}]"#[..]);
    assert_eq!(scanner.advance().unwrap().unwrap().kind, Kind::Name);
}

#[test]
fn decoding() {
    let cases: [(&str, &[u8]); 7] = [
        ("plain é", "plain é".as_bytes()),
        (r#"\"\\\/\b\f\n\r\t"#, b"\"\\/\x08\x0c\n\r\t"),
        (r"\u00e9\ud83d\ude00", "é😀".as_bytes()),
        (r"\ud800x", b"\xed\xa0\x80x"),
        (r"\udc00\ud800", b"\xed\xb0\x80\xed\xa0\x80"),
        (r"\ud800\ud83d\ude00", b"\xed\xa0\x80\xf0\x9f\x98\x80"),
        (r"\ud800\n", b"\xed\xa0\x80\n"),
    ];
    for (inside, want) in cases {
        assert_eq!(&*json_text::decoded(inside.as_bytes()), want, "{inside}");
    }
    assert_eq!(json_text::text(br"a\ud800b").replace('\u{fffd}', "?"), "a???b");
    // Total on anything.
    for junk in [&b"\\"[..], b"\\u", b"\\u12", b"\\ud800\\u", b"\\ud800\\", b"\\\xff"] {
        let _ = json_text::decoded(junk);
    }
}

/// JSONTestSuite: `y_` is accepted, `n_` refused, `i_` either, never a panic.
#[test]
fn json_test_suite() {
    let Ok(corpora) = std::env::var("SANDUK_CORPORA") else {
        println!("skipped: SANDUK_CORPORA is not set");
        return;
    };
    let (mut accepted, mut refused) = (0, 0);
    let mut todo = vec![std::path::PathBuf::from(corpora).join("json")];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let result = scan(&std::fs::read(&path).unwrap());
            // Stricter on purpose: a name that stands twice.
            let twice = name.starts_with("y_object_duplicated_key");
            match name.get(..2) {
                Some("y_") if !twice => {
                    assert!(result.is_ok(), "{name}: {result:?}");
                    accepted += 1;
                }
                Some("n_" | "y_") => {
                    assert!(result.is_err(), "{name}");
                    refused += 1;
                }
                _ => {}
            }
        }
    }
    println!("accepted {accepted}, refused {refused}");
    assert!(accepted > 80 && refused > 180, "not the whole suite: {accepted}, {refused}");
}

/// A Messages body of about 111 KB: tool schemas, long texts with escapes, some of it not ASCII.
fn large_body() -> Vec<u8> {
    let line =
        r#"    let café = \"value\"; // checks the index before the loop\n\tif (a < b) { return c[i]; }\n"#;
    let message = |i: usize| {
        format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{i}","content":"{}"}}]}}"#,
            line.repeat(22)
        )
    };
    let tool = |i: usize| {
        let property = |p: usize| {
            format!(
                r#""property_{p}":{{"type":"string","description":"What property {p} does, in a sentence or two.","enum":["a","b","c"]}}"#
            )
        };
        let properties: Vec<String> = (0..8).map(property).collect();
        format!(
            r#"{{"name":"tool_{i}","description":"{}","input_schema":{{"type":"object","properties":{{{}}},"required":["property_0"],"additionalProperties":false}}}}"#,
            "Does one thing and says so. ".repeat(10),
            properties.join(",")
        )
    };
    let messages: Vec<String> = (0..38).map(message).collect();
    let tools: Vec<String> = (0..25).map(tool).collect();
    format!(
        r#"{{"model":"allowed-model","max_tokens":64000,"stream":true,"tools":[{}],"messages":[{}]}}"#,
        tools.join(","),
        messages.join(",")
    )
    .into_bytes()
}

/// Prints times; asserts none. `SANDUK_SPEED=1 cargo test --release --test json speed -- --nocapture`
#[test]
fn speed() {
    if std::env::var_os("SANDUK_SPEED").is_none() {
        println!("skipped: SANDUK_SPEED is not set");
        return;
    }
    let body = large_body();
    let grants = Grants {
        allow_models: vec!["allowed-model".to_string()],
        max_tokens_cap: Some(1000),
        ..Grants::default()
    };
    let best = |work: &dyn Fn() -> usize| {
        let mut best = std::time::Duration::MAX;
        for _ in 0..400 {
            let start = std::time::Instant::now();
            assert!(std::hint::black_box(work()) > 0);
            best = best.min(start.elapsed());
        }
        best
    };
    let scanned = best(&|| scan(&body).unwrap().len());
    let judged = best(&|| {
        let judged = policy::body(Protocol::Messages, &body, &grants, &rules(true)).unwrap();
        policy::parts(&body, &judged.edits).len()
    });
    let tables = Rules::of(&providers::shipped("anthropic").unwrap()).unwrap();
    let sealed = Grants { sealed: true, ..grants.clone() };
    let listed = best(&|| {
        let judged = policy::body(Protocol::Messages, &body, &sealed, &tables).unwrap();
        policy::parts(&body, &judged.edits).len()
    });
    println!(
        "sealed {listed:?}, {:.2} of the judge without lists",
        listed.as_secs_f64() / judged.as_secs_f64()
    );
    let value = best(&|| {
        let mut value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        value["max_tokens"] = 1000.into();
        serde_json::to_vec(&value).unwrap().len()
    });
    let utf8 = best(&|| std::str::from_utf8(&body).unwrap().len());
    println!(
        "{} bytes: scan {scanned:?}, judge and splice {judged:?}, Value parse and to_vec {value:?}, from_utf8 {utf8:?}",
        body.len()
    );
    println!("ratio {:.1}", value.as_secs_f64() / judged.as_secs_f64());
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

/// The names that are kept to find duplicates are bounded, whatever the size of the body.
#[test]
fn names_are_bounded_from_both_sides() {
    let names = |n: usize| {
        let members: Vec<String> = (0..n).map(|i| format!("\"{i}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let read = |text: String| {
        let mut scanner = Scanner::new(text.as_bytes()).unwrap();
        loop {
            match scanner.advance() {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(bad) => return Some(bad.why),
            }
        }
    };
    assert_eq!(read(names(sanduk::limits::JSON_NAMES)), None);
    assert_eq!(read(names(sanduk::limits::JSON_NAMES + 1)), Some("too many member names"));
    // A closed object's names cost nothing any more.
    let many = vec![names(1000); 100].join(",");
    assert_eq!(read(format!("[{many}]")), None);
}
