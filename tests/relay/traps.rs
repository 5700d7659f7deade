//! What numbers.txt asks of the relay and no other file here has.

use crate::rig::{Act, Provider, Relay, TOKEN, answer, get, post, status};

/// TRAPS 52: whatever goes wrong, the answer is the protocol's JSON: an agent shows it.
#[test]
fn trap_52_every_error_is_json() {
    let gone = Provider::start(|_, _| vec![Act::Close]);
    let body = r#"{"model":"m","max_tokens":1,"messages":[]}"#;
    let long = format!("x-long: {}\r\n", "x".repeat(20_000));
    let folded = get("/v1/models", "A: b\r\n c\r\n");
    let many = "a: b\r\n".repeat(200);
    for (request, want) in [
        ("nonsense\r\n\r\n".to_string(), "400"),
        ("GET / HTTP/3.0\r\n\r\n".into(), "505"),
        (folded, "400"),
        (get("/v1/models", &long), "431"),
        (get("/v1/models", &many), "431"),
        (get(&format!("/{}", "x".repeat(9000)), ""), "414"),
        (post("/v1/messages", "", "[1]"), "400"),
        (post("/v1/messages", "Expect: coffee\r\n", body), "417"),
        (post("/v1/messages", "", body).replace("application/json", "text/plain"), "415"),
        (post("/v1/messages", "", body).replace("Content-Length: ", "Content-Length: 9999999999"), "413"),
        (get("/v1/models", "").replace(TOKEN, ""), "401"),
        (get("/v1/models", "").replace("relay.test", "else.test"), "421"),
        (get("/v2", ""), "403"),
        (post("/v1/messages", "", body), "502"),
    ] {
        for (provider, shape) in
            [("anthropic", r#"{"error":{"message":""#), ("openai", r#"{"error":{"code":""#)]
        {
            let path = if provider == "openai" { "/v1/chat/completions" } else { "/v1/messages" };
            let relay = Relay::start(&gone, &["--provider", provider]);
            let mut asked = request.replace("/v1/messages", path);
            if provider == "openai" {
                asked = asked.replace("x-api-key: ", "Authorization: Bearer ");
            }
            let got = relay.ask(&asked);
            assert_eq!(status(&got), want, "{asked:.200} {got}");
            let (head, text) = got.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("content-type: application/json"), "{head}");
            let error: serde_json::Value =
                serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let message = error["error"]["message"].as_str().unwrap_or_default();
            assert!(!message.is_empty() && text.starts_with(shape), "{text}");
        }
    }
}

/// TRAPS 64: what `Connection` of an answer names is for that hop, too.
#[test]
fn trap_64_connection_named_headers_of_an_answer() {
    let provider = Provider::start(|_, _| {
        let fields = "Request-Id: r\r\nRetry-After: 1\r\nConnection: keep-alive, request-id\r\n";
        vec![answer("200 OK", fields, "{}")]
    });
    let relay = Relay::start(&provider, &[]);
    let got = relay.ask(&get("/v1/models", "")).to_ascii_lowercase();
    assert!(got.contains("retry-after: 1") && !got.contains("request-id"), "{got}");
}
