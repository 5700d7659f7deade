//! Sealed mode's lists, end to end: what the agent is told, what the operator is told, what reaches the provider. The tables
//! themselves are tested in `tests/fields.rs`.

use crate::rig::{Provider, Relay, get, post, status};
use serde_json::json;

const SEALED: [&str; 4] = ["--mode", "sealed", "--log-dir", "log"];
const SEARCH: &str = r#"{"model":"m","max_tokens":1,"messages":[],"tools":[{"type":"web_search_20260318","name":"web_search"}]}"#;

/// The refusal's record and line name the flag; the agent's answer does not.
fn refused(relay: &Relay, request: &str, why: &str, remedy: &str) {
    let got = relay.ask(request);
    assert_eq!(status(&got), "403", "{got}");
    let (head, body) = got.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("x-should-retry: false"), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["message"], why);
    assert_eq!(body["error"]["type"], "permission_error");
    assert!(!got.contains("--allow"), "{got}");
    let records = relay.records();
    let last = records.last().unwrap();
    assert_eq!(last["kind"], "denied", "{last}");
    assert_eq!((&last["why"], &last["remedy"]), (&json!(why), &json!(remedy)), "{last}");
    assert!(relay.line(why).contains(remedy));
}

/// BOX B6: a server-side tool, a URL source and what nobody has named yet are refused before anything is sent.
#[test]
fn box_b06_server_side_tools_and_unknown_fields() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &SEALED);
    let search = post("/v1/messages", "", SEARCH);
    let why = "tools[].type \"web_search_20260318\" is not allowed here: the provider would run it";
    refused(&relay, &search, why, "--allow-server-tools");
    let twice = SEARCH.replace(r#""type":"web_s"#, r#""type":"custom","type":"web_s"#);
    assert_eq!(status(&relay.ask(&post("/v1/messages", "", &twice))), "400");
    let unknown = r#"{"model":"m","max_tokens":1,"messages":[],"from_2099":{"a":1}}"#;
    let why = "the field from_2099 (an object) is not allowed here";
    refused(&relay, &post("/v1/messages", "", unknown), why, "--allow-field 'from_2099'");
    let source = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://169.254.169.254/"}}]}]}"#;
    let why = "the field messages[].content[].source.url (a string) is not allowed here";
    let source = source.replace(r#""type":"url","#, "");
    refused(
        &relay,
        &post("/v1/messages/count_tokens", "", &source),
        why,
        "--allow-field 'messages[].content[].source.url'",
    );
    assert!(provider.seen().is_empty());

    let relay = Relay::start(
        &provider,
        &[&SEALED[..], &["--allow-server-tools", "--allow-field", "from_2099"]].concat(),
    );
    relay.line("--allow-server-tools: the provider may search, fetch and run things for the agent");
    relay.line("--allow-field from_2099: what stands there is not judged");
    for body in [SEARCH, unknown] {
        assert_eq!(status(&relay.ask(&post("/v1/messages", "", body))), "200");
    }
    let seen: Vec<Vec<u8>> = provider.seen().into_iter().map(|s| s.body).collect();
    assert_eq!(seen, [SEARCH.as_bytes(), unknown.as_bytes()]);
    // The weaker choice is in the record.
    let start = &relay.records()[0];
    assert_eq!((&start["allow_server_tools"], &start["allow_fields"]), (&json!(true), &json!(["from_2099"])));
}

/// BOX B17: state that the provider keeps between calls, and so between runs.
#[test]
fn box_b17_no_state_at_the_provider() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[&SEALED[..], &["--provider", "openai"]].concat());
    let why = "the field previous_response_id (a string) is not allowed here";
    let with_key =
        |body: &str| post("/v1/responses", "", body).replace("x-api-key: ", "authorization: Bearer ");
    let earlier = r#"{"model":"m","input":"x","previous_response_id":"resp_1"}"#;
    refused(&relay, &with_key(earlier), why, "--allow-field 'previous_response_id'");
    assert_eq!(status(&relay.ask(&with_key(r#"{"model":"m","input":"x","store":true}"#))), "403");
    assert!(provider.seen().is_empty());
    assert_eq!(status(&relay.ask(&with_key(r#"{"model":"m","input":"x"}"#))), "200");
    assert_eq!(provider.seen()[0].body, br#"{"store":false,"model":"m","input":"x"}"#);
}

/// BOX B19: betas, versions and queries switch things on.
#[test]
fn box_b19_headers_and_queries() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &SEALED);
    let body = r#"{"model":"m","max_tokens":1,"messages":[]}"#;
    let beta = "anthropic-beta: effort-2025-11-24\r\nAnthropic-Beta: mcp-client-2025-11-20\r\n";
    let why = "anthropic-beta \"mcp-client-2025-11-20\" is not allowed here";
    refused(
        &relay,
        &post("/v1/messages", beta, body),
        why,
        "--allow-field 'anthropic-beta=mcp-client-2025-11-20'",
    );
    let server = post("/v1/messages", "anthropic-beta: code-execution-2025-08-25\r\n", body);
    let why = "anthropic-beta \"code-execution-2025-08-25\" is not allowed here";
    refused(&relay, &server, why, "--allow-server-tools");
    let version = post("/v1/messages", "anthropic-version: 2026-10-21\r\n", body);
    let why = "anthropic-version \"2026-10-21\" is not allowed here";
    refused(&relay, &version, why, "--allow-field 'anthropic-version=2026-10-21'");
    let query = post("/v1/messages?beta=true&x=1", "", body);
    refused(&relay, &query, "the query \"x=1\" is not allowed here", "--allow-field '?x=1'");
    for target in [
        "/v1/models?",
        "/v1/models?limit=",
        "/v1/models?limit=1e9",
        "/v1/models?limit=1&limit=2",
        "/v1/models?x=1",
    ] {
        assert_eq!(status(&relay.ask(&get(target, ""))), "403", "{target}");
    }
    assert!(provider.seen().is_empty());
    let good =
        "anthropic-version: 2023-06-01\r\nanthropic-beta: effort-2025-11-24 ,, claude-code-20250219\r\n";
    assert_eq!(status(&relay.ask(&post("/v1/messages?beta=true", good, body))), "200");
    assert_eq!(status(&relay.ask(&get("/v1/models?limit=1000&after_id=claude-opus-5-5", ""))), "200");
    let seen = provider.seen();
    assert!(seen[0].head.contains("effort-2025-11-24 ,, claude-code-20250219"), "{}", seen[0].head);
    assert!(
        seen[1].head.starts_with("GET /v1/models?limit=1000&after_id=claude-opus-5-5 "),
        "{}",
        seen[1].head
    );
}

/// A flag that lifts what is not refused is refused itself.
#[test]
fn lifting_flags_need_sealed_mode() {
    for flag in [&["--allow-server-tools"][..], &["--allow-field", "x"]] {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_sanduk"))
            .args(["relay", "--listen", "unix:none", "--token-file", "none", "--mode", "key-safe"])
            .args(flag)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(flag[0]) && said.contains("no effect"), "{said}");
    }
}
