//! One call, one answer: what it is charged with, for each protocol, streamed and not, whole, silent, cut and garbled.

use crate::rig::{Act, Provider, Relay, answer, send, status};
use crate::{PRICES, ask, outcomes, prices, request};
use serde_json::{Value, json};

/// Providers, where they are asked, and what caps and prices a relay of theirs has.
struct Side {
    provider: &'static str,
    path: &'static str,
    more: &'static [&'static str],
}

const MESSAGES: Side = Side { provider: "anthropic", path: "/v1/messages", more: &[] };
const CHAT: Side = Side { provider: "openai", path: "/v1/chat/completions", more: &[] };
const RESPONSES: Side = Side { provider: "openai", path: "/v1/responses", more: &[] };
const COMPAT: Side = Side { provider: "openai-compat", path: "/v1/chat/completions", more: &[] };
const ROUTER: Side = Side { provider: "openrouter", path: "/api/v1/chat/completions", more: &[] };

/// The charge in picodollars of one call with this body and answer, and whether a second call passes.
fn charged(side: &Side, priced: bool, body: &Value, acts: Vec<Act>) -> (Option<u64>, String) {
    let provider = Provider::start(move |_, _| acts.clone());
    let file = prices(PRICES);
    let mut args = vec!["--provider", side.provider, "--budget", "1", "--log-dir", "log"];
    if priced {
        args.extend(["--prices", &file]);
    }
    args.extend(side.more);
    let relay = Relay::start(&provider, &args);
    let text = request(side.provider, side.path, &body.to_string());
    ask(&relay, &text);
    let second = status(&ask(&relay, &text)).to_string();
    let all = outcomes(&relay);
    (all[0]["charged_picodollars"].as_u64(), second)
}

fn body(side: &Side, streamed: bool) -> Value {
    match side.path {
        "/v1/responses" => json!({"model": "m", "max_output_tokens": 100, "stream": streamed, "input": "x"}),
        _ => {
            json!({"model": "m", "max_tokens": 100, "stream": streamed, "messages": [{"role": "user", "content": "x"}]})
        }
    }
}

fn whole(text: &str, streamed: bool) -> Vec<Act> {
    let kind = if streamed { "text/event-stream" } else { "application/json" };
    vec![answer("200 OK", &format!("Content-Type: {kind}\r\n"), text)]
}

fn events(events: &[Value]) -> String {
    events.iter().map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or("x"))).collect()
}

/// What our prices say: input, output, cache read, five minutes, an hour.
fn picos(parts: [u64; 5]) -> u64 {
    parts.iter().zip(crate::RATES).map(|(n, rate)| n * rate).sum()
}

#[test]
fn each_protocol_streamed_and_not() {
    let usage = json!({"input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 11, "cache_creation_input_tokens": 13,
        "cache_creation": {"ephemeral_5m_input_tokens": 9, "ephemeral_1h_input_tokens": 4}});
    let message =
        json!({"type": "message", "model": "m", "stop_reason": "end_turn", "usage": usage}).to_string();
    let start = json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 7, "output_tokens": 1,
        "cache_read_input_tokens": 11, "cache_creation_input_tokens": 13,
        "cache_creation": {"ephemeral_5m_input_tokens": 9, "ephemeral_1h_input_tokens": 4}}}});
    let delta =
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}});
    let stream = events(&[start, delta, json!({"type": "message_stop"})]);
    for (text, streamed) in [(message, false), (stream, true)] {
        let want = (Some(picos([7, 5, 11, 9, 4])), "200".to_string());
        assert_eq!(
            charged(&MESSAGES, true, &body(&MESSAGES, streamed), whole(&text, streamed)),
            want,
            "{text}"
        );
    }
    let usage = json!({"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46,
        "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 4}});
    let object = json!({"choices": [{"finish_reason": "stop"}], "usage": usage}).to_string();
    let stream = format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [], "usage": usage}));
    for (text, streamed) in [(object, false), (stream, true)] {
        // OpenAI says that the cached tokens are in the count. Of another server that is not known: they are charged beside it.
        let inside = charged(&CHAT, true, &body(&CHAT, streamed), whole(&text, streamed));
        assert_eq!(inside, (Some(picos([6, 6, 30, 0, 4])), "200".into()), "{text}");
        let doubtful = charged(&COMPAT, true, &body(&COMPAT, streamed), whole(&text, streamed));
        assert_eq!(doubtful, (Some(picos([40, 6, 30, 0, 4])), "200".into()), "{text}");
    }
    let usage =
        json!({"input_tokens": 40, "output_tokens": 6, "input_tokens_details": {"cached_tokens": 30}});
    let object = json!({"id": "r", "status": "completed", "usage": usage}).to_string();
    let done = json!({"type": "response.completed", "response": {"id": "r", "usage": usage}});
    for (text, streamed) in [(object, false), (events(&[done]), true)] {
        let got = charged(&RESPONSES, true, &body(&RESPONSES, streamed), whole(&text, streamed));
        assert_eq!(got, (Some(picos([10, 6, 30, 0, 0])), "200".into()), "{text}");
    }
}

/// The most the call can cost: a byte is at least a token, all of it written to a cache for an hour, all of the output asked for.
fn most(body: &Value, output: u64) -> u64 {
    picos([0, output, 0, 0, body.to_string().len() as u64 + 4096])
}

#[test]
fn what_is_owed_and_not_told_is_charged_at_its_most() {
    let start =
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}});
    let cut = |framing: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n");
    let part = events(&[start]);
    let silent = r#"{"type":"message","stop_reason":"end_turn"}"#;
    for (what, streamed, acts) in [
        ("no usage", false, whole(silent, false)),
        ("half a usage", false, whole(r#"{"type":"message","usage":{"output_tokens":1}}"#, false)),
        (
            "negative",
            false,
            whole(r#"{"type":"message","usage":{"input_tokens":-7,"output_tokens":-1}}"#, false),
        ),
        (
            "not a number",
            false,
            whole(r#"{"type":"message","usage":{"input_tokens":NaN,"output_tokens":1e400}}"#, false),
        ),
        ("a cut stream", true, vec![send(&format!("{}{part}", cut("Content-Length: 9999\r\n"))), Act::Close]),
        ("a stream without its end", true, whole(&part, true)),
        (
            "an error in the stream",
            true,
            whole(&format!("{part}event: error\ndata: {{\"type\":\"error\",\"error\":{{}}}}\n\n"), true),
        ),
        ("no answer", false, vec![Act::Close]),
        ("half a head", false, vec![send("HTTP/1.1 200 OK\r\nContent-"), Act::Close]),
        (
            "compressed in a way that is not read",
            false,
            vec![answer("200 OK", "Content-Encoding: br\r\n", "xx")],
        ),
    ] {
        let body = body(&MESSAGES, streamed);
        let (charge, second) = charged(&MESSAGES, true, &body, acts);
        assert_eq!(charge, Some(most(&body, 100)), "{what}");
        assert_ne!(second, "402", "{what}: it is known at most, so the run goes on");
    }
}

#[test]
fn what_is_not_owed_is_free() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#;
    for line in
        ["400 Bad Request", "404 Not Found", "500 Internal Server Error", "401 Unauthorized", "403 Forbidden"]
    {
        let acts = vec![answer(line, "Content-Type: application/json\r\n", error)];
        let (charge, second) = charged(&MESSAGES, true, &body(&MESSAGES, false), acts);
        assert_eq!((charge, second != "402"), (Some(0), true), "{line}");
    }
}

/// OpenRouter's own cost: exactly as written, where it is an amount; else the call is unpriced, and without prices the run stops.
#[test]
fn trap_75_costs_as_servers_write_them() {
    for (cost, want) in [
        ("0.0123", Some(12_300_000_000)),
        ("5e-05", Some(50_000_000)),
        ("\"0.25\"", Some(250_000_000_000)),
        ("0", Some(0)),
        ("0.00000000000010", Some(1)),
        ("{\"total_cost\":0.5}", Some(500_000_000_000)),
        ("-0.01", None),
        ("NaN", None),
        ("Infinity", None),
        ("1e400", None),
        ("1e12", None),
        ("null", None),
        ("true", None),
        ("\"free\"", None),
        ("[0.1]", None),
    ] {
        let text = format!(
            r#"{{"choices":[{{"finish_reason":"stop"}}],"usage":{{"prompt_tokens":5,"completion_tokens":2,"cost":{cost}}}}}"#
        );
        let got = charged(&ROUTER, false, &body(&ROUTER, false), whole(&text, false));
        assert_eq!(got, (want, if want.is_some() { "200" } else { "402" }.into()), "{cost}");
        // With prices the same call has one: by its tokens.
        let priced = charged(&ROUTER, true, &body(&ROUTER, false), whole(&text, false));
        assert_eq!(priced, (want.or(Some(picos([5, 2, 0, 0, 0]))), "200".into()), "{cost}");
    }
}

#[test]
fn byok_is_the_fee_and_what_the_provider_takes() {
    let usage = |details: &str| {
        format!(
            r#"{{"choices":[{{"finish_reason":"stop"}}],"usage":{{"prompt_tokens":5,"completion_tokens":2,"cost":0.1,{details}}}}}"#
        )
    };
    for (details, want) in [
        (r#""is_byok":true,"cost_details":{"upstream_inference_cost":0.2}"#, Some(300_000_000_000)),
        (r#""is_byok":false,"cost_details":{"upstream_inference_cost":0.1}"#, Some(100_000_000_000)),
    ] {
        let got = charged(&ROUTER, false, &body(&ROUTER, false), whole(&usage(details), false));
        assert_eq!(got.0, want, "{details}");
    }
}

/// A server that reports a cost although its file does not say so is not believed: only tokens and prices count there.
#[test]
fn a_cost_from_elsewhere_is_no_charge() {
    let text = r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"cost":0}}"#;
    let got = charged(&COMPAT, true, &body(&COMPAT, false), whole(text, false));
    assert_eq!(got.0, Some(picos([5, 2, 0, 0, 0])));
}

#[test]
fn lines_show_cost_and_what_is_not_known() {
    let provider = Provider::start(|n, _| {
        let usage = r#","usage":{"input_tokens":1000,"output_tokens":1000}"#;
        let text = format!(r#"{{"type":"message"{}}}"#, if n == 0 { usage } else { "" });
        whole(&text, false)
    });
    let relay = Relay::start(&provider, &["--prices", &prices(PRICES)]);
    let text = request("anthropic", "/v1/messages", &body(&MESSAGES, false).to_string());
    ask(&relay, &text);
    relay.line("in=1000 out=1000 $0.0180");
    ask(&relay, &text);
    relay.line("usage=? <=$0.0");
}
