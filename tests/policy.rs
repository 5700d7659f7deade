//! The body policy by tables: what passes, what is refused, and byte for byte what goes upstream.

use sanduk::catalog::providers::ChatCap;
use sanduk::catalog::providers::Protocol::{self, Chat, CountTokens, Messages, Plain, Responses};
use sanduk::limits::{JUDGED_PLACES, MODEL_CHARS};
use sanduk::relay::policy::{self, Deny, Judged, Rules};
use sanduk::relay::start::Grants;

/// Id, body, the bytes upstream or the status.
type Case = (&'static str, Vec<u8>, Result<Vec<u8>, u16>);

fn grants() -> Grants {
    Grants {
        allow_models: vec!["allowed-model".to_string()],
        max_tokens_cap: Some(1000),
        ..Grants::default()
    }
}

/// No tables: `Grants::default()` is not sealed.
fn rules(include_usage: bool) -> Rules {
    Rules {
        include_usage,
        chat_cap: ChatCap::MaxCompletionTokens,
        hosted_models: Vec::new(),
        fields: Vec::new(),
    }
}

fn edited(body: &[u8], judged: &Judged) -> Vec<u8> {
    policy::parts(body, &judged.edits).concat()
}

/// What goes upstream, or the status.
fn forward(protocol: Protocol, body: &[u8], grants: &Grants) -> Result<Vec<u8>, u16> {
    match policy::body(protocol, body, grants, &rules(true)) {
        Ok(judged) => Ok(edited(body, &judged)),
        Err(deny) => {
            assert!(!deny.why.contains("--"), "the agent is told a flag: {}", deny.why);
            Err(deny.status)
        }
    }
}

fn deny(protocol: Protocol, body: &str, grants: &Grants) -> Deny {
    policy::body(protocol, body.as_bytes(), grants, &rules(true)).unwrap_err()
}

const J: &str = r#"{"model":"allowed-model","max_tokens":10,"messages":[]}"#;

/// The request table's group D, on the Messages path. `Some`: the exact bytes upstream; the ids are the table's.
#[test]
fn group_d() {
    let m = |value: &str| format!(r#"{{"model":"allowed-model","max_tokens":{value},"messages":[]}}"#);
    let utf16: Vec<u8> =
        [0xFF, 0xFE].into_iter().chain(J.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let deep = |n: usize| format!(r#"{{"x":{}{},"model":"allowed-model"}}"#, "[".repeat(n), "]".repeat(n));
    let bytes = |s: &str| s.as_bytes().to_vec();
    let x = |raw: &[u8]| {
        [br#"{"model":"allowed-model","max_tokens":10,"messages":[],"x":""#, raw, b"\"}"].concat()
    };
    let same = |body: &str| (body.as_bytes().to_vec(), Ok(body.as_bytes().to_vec()));
    let cases: Vec<Case> = vec![
        ("D01", bytes(r#"{"model":"allowed-model","model":"other-model","max_tokens":10}"#), Err(400)),
        (
            "D02",
            bytes(r#"{"model":"other-model","model":"allowed-model","max_tokens":10,"messages":[]}"#),
            Err(400),
        ),
        (
            "D03",
            bytes(r#"{"model":"allowed-model","mod\u0065l":"other-model","max_tokens":10,"messages":[]}"#),
            Err(400),
        ),
        ("D04", bytes(r#"{"mod\u0065l":"other-model","max_tokens":10,"messages":[]}"#), Err(403)),
        ("D06", bytes(r#"{"model":"Allowed-Model","max_tokens":10,"messages":[]}"#), Err(403)),
        ("D08", bytes(r#"{"model":"allowed-model\u0000x","max_tokens":10,"messages":[]}"#), Err(403)),
        ("D09", bytes(r#"{"model":["allowed-model"],"max_tokens":10,"messages":[]}"#), Err(400)),
        ("D10", bytes(r#"{"max_tokens":10,"messages":[]}"#), Err(403)),
        ("D11", bytes(r#"{"model":null,"max_tokens":10,"messages":[]}"#), Err(403)),
        ("D12", bytes(r#"{"model":"allowed-model","models":["other-model"],"max_tokens":10}"#), Err(403)),
        ("D14", bytes(&m("999999")), Ok(bytes(&m("1000")))),
        ("D16", bytes(&m("\"10\"")), Err(400)),
        ("D17", bytes(&m("10.5")), Err(400)),
        ("D18", bytes(&m("1e3")), Err(400)),
        ("D19", bytes(&m("-5")), Err(400)),
        ("D20", bytes(&m("0")), Err(400)),
        ("D21", bytes(&m("true")), Err(400)),
        ("D22", bytes(&m("null")), Err(400)),
        ("D23", bytes(&m("1e999")), Err(400)),
        ("D25", bytes(&m("{\"a\":1}")), Err(400)),
        ("D26", bytes(&m("[1]")), Err(400)),
        (
            "D27",
            bytes(r#"{"model":"allowed-model","max_tokens":10,"max_tokens":999999,"messages":[]}"#),
            Err(400),
        ),
        (
            "D28",
            bytes(
                r#"{"model":"allowed-model","max_tokens":10,"max_completion_tokens":999999,"n":50,"messages":[]}"#,
            ),
            Err(400),
        ),
        ("D31", bytes(&format!("\u{feff}{J}")), Err(400)),
        ("D32", utf16, Err(400)),
        ("D33", x(b"\xff\xfe"), Err(400)),
        ("D34", x(b"\xed\xa0\x80"), Err(400)),
        ("D35", bytes("{\"model\":\"allowed-model\",\"x\":\"a\nb\",\"messages\":[]}"), Err(400)),
        ("D36", bytes(&deep(100_000)), Err(400)),
        ("D37", vec![b'['; 100_000], Err(400)),
        ("D38", bytes(&format!("{J}{{}}")), Err(400)),
        ("D40", bytes("[]"), Err(400)),
        ("D41", bytes("\"str\""), Err(400)),
        ("D42", bytes(r#"{"model":"allowed-model",}"#), Err(400)),
        ("D43", bytes("{'model':'allowed-model'}"), Err(400)),
        ("D44", bytes(&m("NaN")), Err(400)),
        ("D45", bytes(r#"/*c*/{"model":"allowed-model"}"#), Err(400)),
        ("D46", bytes(&m("010")), Err(400)),
    ];
    let unchanged = [
        (
            "D29",
            same(
                r#"{"model":"allowed-model","max_tokens":10,"messages":[{"role":"user","content":"\ud800"}]}"#,
            ),
        ),
        (
            "D30",
            same(r#"{"model":"allowed-model","max_tokens":10,"messages":[],"x":12345678901234567890123.10}"#),
        ),
        ("D39", same("{\"model\":\"allowed-model\",\"max_tokens\":10,\"messages\":[]}\r\n \t")),
        (
            "D48",
            same(
                r#"{"model":"allowed-model","max_tokens":10,"stream":true,"stream_options":{"include_usage":false},"messages":[]}"#,
            ),
        ),
    ];
    for (id, body, want) in cases.into_iter().chain(unchanged.map(|(id, (body, want))| (id, body, want))) {
        assert_eq!(forward(Messages, &body, &grants()), want, "{id}");
    }
}

/// Body in, body upstream, per protocol.
#[test]
fn what_goes_upstream() {
    let cases: &[(Protocol, &str, &str)] = &[
        // The cap: clamped, inserted, replaced.
        (Messages, r#"{"model":"allowed-model"}"#, r#"{"max_tokens":1000,"model":"allowed-model"}"#),
        (
            Messages,
            r#" { "model" : "allowed-model" , "max_tokens" : 1001 } "#,
            r#" { "model" : "allowed-model" , "max_tokens" : 1000 } "#,
        ),
        (
            Messages,
            r#"{"max_tokens":1000,"model":"allowed-model"}"#,
            r#"{"max_tokens":1000,"model":"allowed-model"}"#,
        ),
        (
            Messages,
            r#"{"max_tokens":18446744073709551617,"model":"allowed-model"}"#,
            r#"{"max_tokens":1000,"model":"allowed-model"}"#,
        ),
        (
            Messages,
            r#"{"max_\u0074okens":2000,"model":"allowed-model"}"#,
            r#"{"max_\u0074okens":1000,"model":"allowed-model"}"#,
        ),
        (
            Messages,
            r#"{"model":"allowed-model","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":31999}}"#,
            r#"{"model":"allowed-model","max_tokens":1000,"thinking":{"type":"enabled","budget_tokens":999}}"#,
        ),
        (
            Messages,
            r#"{"model":"allowed-model","max_tokens":9,"max_output_tokens":70000}"#,
            r#"{"model":"allowed-model","max_tokens":9,"max_output_tokens":1000}"#,
        ),
        (
            Messages,
            r#"{"model":"allowed-model","max_tokens":9,"fallbacks":[{"model":"allowed-model","max_tokens":90000,"thinking":{"budget_tokens":5000}}]}"#,
            r#"{"model":"allowed-model","max_tokens":9,"fallbacks":[{"model":"allowed-model","max_tokens":1000,"thinking":{"budget_tokens":999}}]}"#,
        ),
        (
            Messages,
            r#"{"model":"allowed-model","max_tokens":9,"tools":[{"type":"advisor_20260301","model":"allowed-model","max_tokens":90000}]}"#,
            r#"{"model":"allowed-model","max_tokens":9,"tools":[{"type":"advisor_20260301","model":"allowed-model","max_tokens":1000}]}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5000,"max_completion_tokens":7000}"#,
            r#"{"model":"allowed-model","max_tokens":1000,"max_completion_tokens":1000}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":99999}"#,
            r#"{"model":"allowed-model","max_tokens":1000}"#,
        ),
        (Chat, r#"{"model":"allowed-model"}"#, r#"{"max_completion_tokens":1000,"model":"allowed-model"}"#),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":9,"reasoning":{"effort":"low","max_tokens":64000}}"#,
            r#"{"model":"allowed-model","max_tokens":9,"reasoning":{"effort":"low","max_tokens":1000}}"#,
        ),
        // What a message says chooses nothing, what it is tagged with does.
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":9,"messages":[{"model":"allowed-model","content":[{"model":"x","Model":2}]}]}"#,
            r#"{"model":"allowed-model","max_tokens":9,"messages":[{"model":"allowed-model","content":[{"model":"x","Model":2}]}]}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_completion_tokens":null}"#,
            r#"{"model":"allowed-model","max_completion_tokens":1000}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":null,"max_completion_tokens":50}"#,
            r#"{"model":"allowed-model","max_tokens":null,"max_completion_tokens":50}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":null}"#,
            r#"{"max_completion_tokens":1000,"model":"allowed-model","max_tokens":null}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5,"n":1,"best_of":null}"#,
            r#"{"model":"allowed-model","max_tokens":5,"n":1,"best_of":null}"#,
        ),
        (
            Responses,
            r#"{"model":"allowed-model","stream":true}"#,
            r#"{"max_output_tokens":1000,"model":"allowed-model","stream":true}"#,
        ),
        (
            Responses,
            r#"{"model":"allowed-model","max_output_tokens":null}"#,
            r#"{"model":"allowed-model","max_output_tokens":1000}"#,
        ),
        (
            Responses,
            r#"{"model":"allowed-model","max_output_tokens":1001}"#,
            r#"{"model":"allowed-model","max_output_tokens":1000}"#,
        ),
        (
            CountTokens,
            r#"{"model":"allowed-model","messages":[]}"#,
            r#"{"model":"allowed-model","messages":[]}"#,
        ),
        // The usage of streams: Chat only, streamed only.
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"model":"allowed-model","max_tokens":5,"stream":true}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","stream":true}"#,
            r#"{"max_completion_tokens":1000,"stream_options":{"include_usage":true},"model":"allowed-model","stream":true}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true,"stream_options":{"include_usage":false,"x":1}}"#,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true,"stream_options":{"include_usage":true,"x":1}}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true,"stream_options":{"x":[{"include_usage":false}]}}"#,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true,"stream_options":{"include_usage":true,"x":[{"include_usage":false}]}}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true,"stream_options":{ }}"#,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true,"stream_options":{"include_usage":true }}"#,
        ),
        (
            Chat,
            r#"{"stream_options":null,"model":"allowed-model","max_tokens":5,"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"model":"allowed-model","max_tokens":5,"stream":true}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5,"stream":false}"#,
            r#"{"model":"allowed-model","max_tokens":5,"stream":false}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}"#,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            Messages,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true}"#,
            r#"{"model":"allowed-model","max_tokens":5,"stream":true}"#,
        ),
        // Names inside schemas, tool inputs and messages choose nothing.
        (
            Messages,
            r#"{"model":"allowed\u002dmodel","max_tokens":5,"messages":[{"content":[{"type":"tool_use","input":{"model":"z","max_tokens":9999,"Model":1}}]}],"tools":[{"input_schema":{"model":"z","MODEL":1}}]}"#,
            r#"{"model":"allowed\u002dmodel","max_tokens":5,"messages":[{"content":[{"type":"tool_use","input":{"model":"z","max_tokens":9999,"Model":1}}]}],"tools":[{"input_schema":{"model":"z","MODEL":1}}]}"#,
        ),
        (
            Chat,
            r#"{"model":"allowed-model","max_tokens":5,"models":["allowed-model"],"route":null,"fallbacks":[]}"#,
            r#"{"model":"allowed-model","max_tokens":5,"models":["allowed-model"],"route":null,"fallbacks":[]}"#,
        ),
    ];
    for (protocol, body, want) in cases {
        let got = forward(*protocol, body.as_bytes(), &grants());
        assert_eq!(got.map(|b| String::from_utf8(b).unwrap()), Ok(want.to_string()), "{body}");
    }
}

#[test]
fn trap_58_a_body_that_is_no_object() {
    for body in ["[1]", "null", "\"s\"", "5", "", " "] {
        assert_eq!(forward(Messages, body.as_bytes(), &Grants::default()), Err(400), "{body}");
    }
    let odd = r#"{"messages":null,"tools":5,"output_config":null}"#;
    assert_eq!(forward(Messages, odd.as_bytes(), &Grants::default()), Ok(odd.as_bytes().to_vec()));
}

#[test]
fn trap_59_duplicates_and_byte_order_marks() {
    for body in [r#"{"a":{"b":[{"c":1,"\u0063":2}]}}"#, "\u{feff}{}", r#"{"model":"x","model":"x"}"#] {
        assert_eq!(forward(Chat, body.as_bytes(), &Grants::default()), Err(400), "{body}");
    }
}

/// BOX B6: a body that two readers could read differently passes neither: a member twice at any depth, compared decoded, and a name
/// that differs from a judged one in case only. (What may be in a sealed body is `fields`.)
#[test]
fn box_b06_two_readings_of_one_body() {
    for body in [
        r#"{"model":"allowed-model","tools":[{"type":"custom","type":"web_search_20250305"}]}"#,
        r#"{"model":"allowed-model","messages":[{"content":[{"source":{"type":"base64","t\u0079pe":"url"}}]}]}"#,
        r#"{"model":"allowed-model","a":{"b":{"c":{"d":[[{"x":0,"y":{"x":1},"x":2}]]}}}}"#,
        r#"{"model":"allowed-model","Model":"other"}"#,
        r#"{"model":"allowed-model","MAX_TOKENS":99999}"#,
    ] {
        assert!(forward(Messages, body.as_bytes(), &grants()).is_err(), "{body}");
    }
    let once = r#"{"model":"allowed-model","max_tokens":5,"a":{"x":0,"y":{"x":1}}}"#;
    assert_eq!(forward(Messages, once.as_bytes(), &grants()), Ok(once.as_bytes().to_vec()));
}

#[test]
fn trap_60_both_caps_of_chat() {
    let capped = Grants { max_tokens_cap: Some(100), ..Grants::default() };
    let body = r#"{"max_completion_tokens":50,"max_tokens":99999}"#;
    assert_eq!(forward(Chat, body.as_bytes(), &capped), Ok(body.replace("99999", "100").into_bytes()));
    for value in ["true", "-1", "1e9", "0", "\"5\""] {
        let body = format!(r#"{{"max_completion_tokens":50,"max_tokens":{value}}}"#);
        assert_eq!(forward(Chat, body.as_bytes(), &capped), Err(400), "{value}");
    }
}

#[test]
fn trap_61_include_usage_only_where_it_is_known() {
    let body = br#"{"stream":true}"#;
    for (protocol, added) in [(Chat, 1), (Messages, 0), (Responses, 0), (CountTokens, 0)] {
        let judged = policy::body(protocol, body, &Grants::default(), &rules(true)).unwrap();
        assert_eq!(judged.edits.len(), added, "{protocol:?}");
    }
    assert!(policy::body(Chat, body, &Grants::default(), &rules(false)).unwrap().edits.is_empty());
}

#[test]
fn trap_62_numbers_and_order_survive() {
    let body = r#"{"z":1.10,"max_tokens":5000,"a":12345678901234567890123,"b":1E400,"u":"\u00e9"}"#;
    let want = body.replace("5000", "1000");
    let capped = Grants { max_tokens_cap: Some(1000), ..Grants::default() };
    assert_eq!(forward(Messages, body.as_bytes(), &capped), Ok(want.into_bytes()));
}

#[test]
fn refusals() {
    let cases: &[(u16, Protocol, &str)] = &[
        (403, CountTokens, r#"{"model":"other","messages":[]}"#),
        (403, Chat, r#"{"model":"allowed-model ","max_tokens":1}"#),
        (403, Chat, r#"{"model":"","max_tokens":1}"#),
        (403, Chat, r#"{"model":"allowed-model:online","max_tokens":1}"#),
        (403, Chat, r#"{"model":"ａllowed-model","max_tokens":1}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"models":["allowed-model","x"]}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"models":"x"}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"models":[["x"]]}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"models":[{"model":"allowed-model"}]}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"route":"fallback"}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"preset":"x"}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"fallbacks":[{"model":"x"}]}"#),
        (403, Messages, r#"{"model":"allowed-model","max_tokens":1,"fallbacks":"default"}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"moderation":{"model":"x"}}"#),
        (403, Messages, r#"{"model":"allowed-model","max_tokens":1,"tools":[{"model":"x"}]}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"messages":[{"role":"user"},{"model":"x"}]}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"tools":[{"type":"openrouter:fusion"}]}"#),
        (
            403,
            Chat,
            r#"{"model":"allowed-model","max_tokens":1,"tools":[{"type":"openrouter:sub\u0061gent"}]}"#,
        ),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"tools":[{"parameters":{"model":"x"}}]}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"tools":[{"parameters":{"models":["x"]}}]}"#),
        (403, Responses, r#"{"model":"allowed-model","tools":[{"type":"image_generation"}]}"#),
        (403, Responses, r#"{"model":"allowed-model","tools":[{"svg":{"model":"x"}}]}"#),
        (403, Chat, r#"{"model":"allowed-model","max_tokens":1,"compound_custom":{"models":{}}}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"messages":[{"Model":"x"}]}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"reasoning":{"max_tokens":"9"}}"#),
        (400, Messages, r#"{"model":"allowed-model","max_tokens":1,"thinking":{"budget_tokens":"5000"}}"#),
        (400, Messages, r#"{"model":"allowed-model","max_tokens":1,"thinking":{"Budget_tokens":5000}}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"n":2}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"n":"1"}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"best_of":20}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"n_predict":-1}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"max_completion_tokens":"9"}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":-0}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"stream":"true"}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"stream":1}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"stream":true,"stream_options":[]}"#),
        (
            400,
            Chat,
            r#"{"model":"allowed-model","max_tokens":1,"stream":true,"stream_options":{"include_usage":"yes"}}"#,
        ),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"Model":"x"}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"MAX_TOKENS":99999}"#),
        (400, Chat, "{\"model\":\"allowed-model\",\"max_tokens\":1,\"max_to\u{212A}ens\":99999}"),
        (400, Chat, "{\"model\":\"allowed-model\",\"max_tokens\":1,\"model\u{17F}\":[\"x\"]}"),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"\u004dodel":"x"}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"Stream_Options":{}}"#),
        (400, Chat, r#"{"model":"allowed-model","max_tokens":1,"messages":[{"a":1,"a":2}]}"#),
        (400, Plain, "{}"),
    ];
    for (status, protocol, body) in cases {
        assert_eq!(forward(*protocol, body.as_bytes(), &grants()), Err(*status), "{body}");
    }
}

#[test]
fn without_grants_nothing_is_changed_and_models_are_free() {
    let free = Grants::default();
    for body in [
        r#"{"model":"x","max_tokens":900000,"n":5}"#,
        r#"{"messages":[]}"#,
        r#"{"model":null,"max_tokens":"x"}"#,
        r#"{"models":["a"],"route":"fallback"}"#,
        "{}",
    ] {
        assert_eq!(forward(Chat, body.as_bytes(), &free), Ok(body.as_bytes().to_vec()), "{body}");
    }
    assert_eq!(forward(Chat, br#"{"model":["x"]}"#, &free), Err(400));
    let capped = Grants { max_tokens_cap: Some(7), ..Grants::default() };
    assert_eq!(forward(Responses, b"{ }", &capped), Ok(b"{\"max_output_tokens\":7 }".to_vec()));
    // A provider that does not want include_usage.
    let judged = policy::body(Chat, br#"{"stream":true}"#, &free, &rules(false)).unwrap();
    assert!(judged.edits.is_empty() && judged.streamed);
}

#[test]
fn the_verdict_says_what_it_did() {
    let body = br#"{"model":"allowed\u002dmodel","max_tokens":64000,"thinking":{"budget_tokens":31999},"stream":true}"#;
    let judged = policy::body(Messages, body, &grants(), &rules(true)).unwrap();
    assert_eq!(judged.clamped, ["max_tokens 64000->1000", "thinking.budget_tokens 31999->999"]);
    assert_eq!(judged.model.as_deref(), Some("allowed-model"));
    assert!(judged.streamed);
    let judged = policy::body(Chat, br#"{"model":"allowed-model"}"#, &grants(), &rules(true)).unwrap();
    assert_eq!(judged.clamped, ["max_completion_tokens unset->1000"]);
    assert_eq!(policy::bodyless().edits, []);

    let refused = deny(Messages, r#"{"model":"no\n"}"#, &grants());
    assert_eq!(
        (refused.status, refused.kind, refused.remedy),
        (403, "permission_error", "--allow-model".into())
    );
    assert_eq!(deny(Chat, r#"{"model":"no"}"#, &grants()).kind, "permission_error");
    assert_eq!(deny(Responses, "[", &grants()).kind, "invalid_request_error");
}

#[test]
fn hostile_bodies_stay_small() {
    let list = |n: usize| {
        format!(r#"{{"model":"allowed-model","max_tokens":1,"models":[{}]}}"#, vec!["0"; n].join(","))
    };
    assert_eq!(deny(Chat, &list(100_000), &Grants::default()).why, "the body names too many models or tools");
    assert!(forward(Chat, list(JUDGED_PLACES - 10).as_bytes(), &Grants::default()).is_ok());
    let long = format!(r#"{{"model":"\u001b[2J{}"}}"#, "x".repeat(100_000));
    assert!(
        policy::body(Chat, long.as_bytes(), &Grants::default(), &rules(true)).unwrap().model.unwrap().len()
            <= MODEL_CHARS
    );
    let refused = deny(Chat, &long, &grants());
    assert!(refused.why.len() < 300 && !refused.why.contains('\u{1b}'), "{}", refused.why);
}

/// Whatever stands around the edited spans comes out as it went in: the pieces between the edits are the body's own slices.
#[test]
fn edits_touch_nothing_else() {
    let fillers = [
        r#""a":[1,2,{"b":null}]"#,
        r#""u":"\ud800\u00e9é😀""#,
        r#""f":-0.10e+5"#,
        "\"s\" :\t\"x\\\"}{\" ",
        r#""big":123456789012345678901234567890"#,
    ];
    let judged_members = [
        r#""max_tokens":99999"#,
        r#""stream_options":{"include_usage":false}"#,
        r#""stream":true"#,
        r#""model":"allowed-model""#,
    ];
    for rotation in 0..judged_members.len() {
        for filler in fillers {
            let mut members: Vec<&str> = judged_members.to_vec();
            members.rotate_left(rotation);
            members.insert(rotation, filler);
            let body = format!("{{{}}}", members.join(" ,\n"));
            let judged = policy::body(Chat, body.as_bytes(), &grants(), &rules(true)).unwrap();
            let (mut from, mut kept) = (0, Vec::new());
            for (span, _) in &judged.edits {
                assert!(span.start >= from && span.end <= body.len());
                kept.extend_from_slice(&body.as_bytes()[from..span.start]);
                from = span.end;
            }
            kept.extend_from_slice(&body.as_bytes()[from..]);
            let want = body.replace("99999", "").replace("false", "");
            assert_eq!(String::from_utf8(kept).unwrap(), want);
            let upstream = String::from_utf8(edited(body.as_bytes(), &judged)).unwrap();
            assert_eq!(upstream, body.replace("99999", "1000").replace("false", "true"));
        }
    }
}

/// Names by which a model searches, runs things, brings tools of an account, or lets another machine answer: sealed mode wants them
/// allowed by name. The names in other cases and with other variants behind them too.
#[test]
fn models_that_do_more_than_answer() {
    let ask = |provider: &str, model: &str, grants: &Grants| {
        let rules = Rules::of(&sanduk::catalog::providers::shipped(provider).unwrap()).unwrap();
        let body = format!(r#"{{"model":"{model}","messages":[]}}"#);
        policy::body(Chat, body.as_bytes(), grants, &rules).map(|_| ())
    };
    let sealed = Grants { sealed: true, ..Grants::default() };
    for (provider, model) in [
        ("openrouter", "openai/gpt-5:online"),
        ("openrouter", "openai/gpt-5:ONLINE:nitro"),
        ("openrouter", "openai/gpt-5:on\\u006cine"),
        ("openrouter", "@preset/mine"),
        ("openrouter", "openai/gpt-5@preset/mine"),
        ("openrouter", "openrouter/fusion"),
        ("openrouter", "perplexity/sonar-pro"),
        ("openai", "gpt-4o-search-preview-2025-03-11"),
        ("openai", "o3-deep-research"),
        ("openai-compat", "gpt-oss:120b-cloud"),
        ("openai-compat", "deepseek:cloud"),
        ("openai-compat", "groq/compound-mini"),
        ("openai-compat", "litellm_proxy/any"),
    ] {
        let refused = ask(provider, model, &sealed).unwrap_err();
        assert!(refused.status == 403 && refused.why.contains("by name"), "{model}: {}", refused.why);
        assert_eq!(refused.remedy, "--allow-model");
        let name = model.replace("\\u006c", "l");
        let named = Grants { allow_models: vec![name], ..sealed.clone() };
        assert!(ask(provider, model, &named).is_ok() && ask(provider, model, &Grants::default()).is_ok());
    }
    let long = "x".repeat(300) + "-cloud";
    assert!(ask("openai-compat", &long, &sealed).is_err());
    for (provider, model) in [
        ("openrouter", "openai/gpt-5"),
        ("openrouter", "openrouter/auto"),
        ("openai", "gpt-5"),
        ("openai-compat", "qwen3:8b"),
    ] {
        assert!(ask(provider, model, &sealed).is_ok(), "{model}");
    }
}
