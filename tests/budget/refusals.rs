//! What is refused: at the start what cannot be counted, a call that has no price or could move it, a call that does not fit.

use crate::rig::{Act, Provider, Relay, answer, status};
use crate::{PRICES, ask, chat, messages, prices, request, start_refused};
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};

const WHOLE: &str =
    r#"{"type":"message","stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;

fn plain() -> Provider {
    Provider::start(|_, _| vec![answer("200 OK", "Content-Type: application/json\r\n", WHOLE)])
}

#[test]
fn what_cannot_be_counted_does_not_start() {
    let file = prices(PRICES);
    let bad = prices(&PRICES.replace("input = \"3\"", "input = \"-3\""));
    let undated = prices("[models.m]\ninput = 1\n");
    let missing = format!("{file}.not");
    let strict = ["--budget", "1", "--budget-mode", "strict"];
    for (more, want) in [
        (vec!["--budget", "1"], "provider anthropic reports tokens, not cost; give --prices FILE"),
        (vec!["--budget", "1", "--provider", "openai"], "provider openai reports tokens"),
        (vec!["--budget", "nan", "--provider", "openrouter"], "dollars above 0"),
        (vec!["--budget", "inf", "--provider", "openrouter"], "dollars above 0"),
        (vec!["--budget=-1", "--provider", "openrouter"], "dollars above 0"),
        (vec!["--budget", "0", "--provider", "openrouter"], "dollars above 0"),
        (vec!["--budget", "1e3", "--provider", "openrouter"], "dollars above 0"),
        (vec!["--budget-mode", "strict"], "there is no budget"),
        ([&strict[..], &["--max-tokens-cap", "9"]].concat(), "reports tokens, not cost"),
        (
            [&strict[..], &["--max-tokens-cap", "9", "--provider", "openrouter"]].concat(),
            "without prices nothing can be reserved",
        ),
        ([&strict[..], &["--prices", &file]].concat(), "give --max-tokens-cap N"),
        (
            [&strict[..], &["--prices", &file, "--max-tokens-cap", "9", "--mode", "key-safe"]].concat(),
            "use --mode sealed",
        ),
        (
            [&strict[..], &["--prices", &file, "--max-tokens-cap", "9", "--allow-server-tools"]].concat(),
            "--allow-server-tools",
        ),
        (
            [&strict[..], &["--prices", &file, "--max-tokens-cap", "9", "--allow-field", "speed"]].concat(),
            "--allow-field",
        ),
        (vec!["--budget", "1", "--prices", &file, "--allow-model", "other"], "model other has no price"),
        (vec!["--budget", "1", "--prices", &file, "--allow-server-tools"], "is in no price file"),
        (
            vec!["--budget", "1", "--prices", &bad],
            "prices.toml:4:1: m: input must be dollars per million tokens",
        ),
        (vec!["--budget", "1", "--prices", &undated], "date is missing"),
        (vec!["--budget", "1", "--prices", &missing], "cannot read the prices from"),
        (vec!["--max-calls", "0"], "whole number above 0"),
        (vec!["--max-tokens-total", "1.5"], "whole number above 0"),
    ] {
        let (code, words) = start_refused(&more);
        assert!(code == Some(2) && words.contains(want), "{more:?}: {code:?} {words}");
        assert_eq!(words.lines().count(), 1, "{words}");
    }
}

#[test]
fn a_call_without_a_price_is_refused_before_it_is_made() {
    let provider = plain();
    let relay = Relay::start(&provider, &["--budget", "1", "--prices", &prices(PRICES)]);
    let call = |body: &str| ask(&relay, &request("anthropic", "/v1/messages", body));
    for (body, want) in [
        (r#"{"model":"M","max_tokens":1,"messages":[]}"#, "the model M has no price here"),
        (r#"{"max_tokens":1,"messages":[]}"#, "has no price here"),
        (r#"{"model":"m","speed":"fast","messages":[]}"#, "speed may change what the call costs"),
        (r#"{"model":"m","service_tier":"priority","messages":[]}"#, "service_tier may change"),
        (r#"{"model":"m","inference_geo":"us","messages":[]}"#, "inference_geo may change"),
        (r#"{"model":"m","models":["x"],"messages":[]}"#, "models may change"),
        (r#"{"model":"m","fallbacks":[{"model":"x"}],"messages":[]}"#, "fallbacks may change"),
        (
            r#"{"model":"m","messages":[],"tools":[{"type":"web_search_20250305","name":"w"}]}"#,
            "tools[].type may change",
        ),
    ] {
        let got = call(body);
        assert!(status(&got) == "403" && got.contains(want), "{body}: {got}");
        assert!(got.contains("x-should-retry: false") && !got.contains("--prices"), "{got}");
    }
    assert_eq!(provider.seen().len(), 0);
    for body in [
        r#"{"model":"m-also","max_tokens":1,"messages":[],"service_tier":"auto","speed":null}"#,
        r#"{"model":"m","max_tokens":1,"messages":[],"tools":[{"type":"namespace","name":"x","tools":[]},{"type":"tool_search","execution":"client"}]}"#,
        r#"{"model":"m","max_tokens":1,"messages":[],"tools":[{"name":"x","input_schema":{}},{"type":"custom","name":"y"},{"type":"bash_20250124","name":"bash"}]}"#,
    ] {
        assert_eq!(status(&call(body)), "200", "{body}");
    }
}

/// A call in the background answers before it has used anything, so no cap by use could count it.
#[test]
fn no_call_goes_on_behind_its_answer() {
    let queued = r#"{"id":"r","object":"response","status":"queued","output":[],"usage":null}"#;
    let provider =
        Provider::start(move |_, _| vec![answer("200 OK", "Content-Type: application/json\r\n", queued)]);
    let said = |more: &[&str], value: &str| {
        let relay = Relay::start(&provider, &[&["--provider", "openai"], more].concat());
        let body = format!("{{\"model\":\"m\",\"input\":\"x\",\"background\":{value}}}");
        ask(&relay, &request("openai", "/v1/responses", &body))
    };
    let file = prices(PRICES);
    for cap in [&["--max-tokens-total", "1000"][..], &["--budget", "1", "--prices", &file]] {
        for value in ["true", "1", "\"true\"", "{}"] {
            let got = said(cap, value);
            assert!(status(&got) == "403" && got.contains("a background call is not let pass"), "{got}");
        }
        assert_eq!(provider.seen().len(), 0);
        assert_eq!(status(&said(cap, "false")), "200");
        assert_eq!(status(&said(cap, "null")), "200");
        provider.forget();
    }
    // Where only calls are counted, or nothing is, it may.
    assert_eq!(status(&said(&["--max-calls", "5"], "true")), "200");
    assert_eq!(status(&said(&[], "true")), "200");
}

/// The refusal is the protocol's own, final, with both figures; the run ends with 5 behind it.
#[test]
fn a_cap_speaks_the_protocols_own_words() {
    let costly = r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"cost":1.2}}"#;
    let provider =
        Provider::start(move |_, _| vec![answer("200 OK", "Content-Type: application/json\r\n", costly)]);
    let mut relay =
        Relay::start(&provider, &["--provider", "openrouter", "--budget", "1", "--log-dir", "log"]);
    assert_eq!(status(&ask(&relay, &chat())), "200");
    relay.line("95 per cent used: $1.2000 of $1.0000");
    let got = ask(&relay, &chat());
    let (head, body) = got.split_once("\r\n\r\n").unwrap();
    assert!(status(&got) == "402" && head.contains("x-should-retry: false"), "{got}");
    let error: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(error["error"]["type"], "budget_exceeded");
    assert_eq!(error["error"]["message"], "$1.2000 spent against a $1.0000 ceiling");
    assert_eq!(relay.ended(), Some(5));
    let records = relay.records();
    assert_eq!(records[0]["caps"]["budget_picodollars"], 1_000_000_000_000u64);
    assert!(records.iter().any(|r| r["kind"] == "denied" && r["status"] == 402 && r["remedy"] == "--budget"));
}

/// `strict` says what would fit, and that fits.
#[test]
fn strict_prints_the_bound_that_fits() {
    let provider = plain();
    let file = prices(PRICES);
    let args = [
        "--mode",
        "sealed",
        "--budget",
        "0.10",
        "--budget-mode",
        "strict",
        "--prices",
        &file,
        "--max-tokens-cap",
        "100000",
    ];
    let ask_for = |output: u64| {
        let relay = Relay::start(&provider, &args);
        let body =
            json!({"model": "m", "max_tokens": output, "messages": [{"role": "user", "content": "x"}]});
        ask(&relay, &request("anthropic", "/v1/messages", &body.to_string()))
    };
    let got = ask_for(50_000);
    assert_eq!(status(&got), "402", "{got}");
    let fits: u64 =
        got.split("an output bound of ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(fits > 1_000 && fits < 50_000, "{got}");
    assert_eq!(status(&ask_for(fits)), "200");
    assert_eq!(status(&ask_for(fits + 1)), "402");
    let seen = provider.seen();
    assert_eq!(seen.len(), 1);
}

/// Images and documents can count more tokens than they have bytes; sound has a price of its own.
#[test]
fn strict_takes_no_media_without_a_bound() {
    let provider = plain();
    let (file, with) = (prices(PRICES), prices(&format!("{PRICES}media_tokens = 2000\n")));
    let image = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content":
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}]});
    let call = request("anthropic", "/v1/messages", &image.to_string());
    for (file, want) in [(&file, "403"), (&with, "200")] {
        let args = [
            "--mode",
            "sealed",
            "--budget",
            "1",
            "--budget-mode",
            "strict",
            "--prices",
            file,
            "--max-tokens-cap",
            "10",
        ];
        let relay = Relay::start(&provider, &[&args[..], &["--log-dir", "log"]].concat());
        let got = ask(&relay, &call);
        assert_eq!(status(&got), want, "{got}");
        if want == "200" {
            let verdict = relay.records().into_iter().find(|r| r["kind"] == "verdict").unwrap();
            assert_eq!(verdict["reserved_tokens"], image.to_string().len() as u64 + 4096 + 2000 + 5);
        }
    }
    let sound = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content":
        [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]});
    let args = ["--mode", "sealed", "--provider", "openai", "--budget", "1", "--prices", &with];
    let relay = Relay::start(&provider, &args);
    let got = ask(&relay, &request("openai", "/v1/chat/completions", &sound.to_string()));
    assert!(status(&got) == "403" && got.contains("input_audio may change"), "{got}");
}

/// A client that leaves while its call waits for its turn makes no call, and holds nobody up.
#[test]
fn a_client_that_left_while_it_waited_is_dropped() {
    let whole = answer("200 OK", "Content-Type: application/json\r\n", WHOLE);
    let provider = Provider::start(
        move |n, _| if n == 0 { vec![Act::Wait, whole.clone()] } else { vec![whole.clone()] },
    );
    let relay = Relay::start(&provider, &["--max-tokens-total", "1000"]);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(&relay, &messages(1)));
        while provider.seen().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut leaves = relay.connect();
        leaves.write_all(messages(2).as_bytes()).unwrap();
        let stays = scope.spawn(|| ask(&relay, &messages(3)));
        std::thread::sleep(Duration::from_millis(50));
        drop(leaves);
        relay.line("the client left before its call had its turn");
        provider.go();
        assert_eq!((status(&first.join().unwrap()), status(&stays.join().unwrap())), ("200", "200"));
    });
    assert_eq!(provider.seen().len(), 2);
}

/// One look-up, or a count of tokens, neither waits for its turn nor meets a cap.
#[test]
fn look_ups_are_not_held_up() {
    let provider = Provider::start(|_, head| {
        let whole = answer("200 OK", "Content-Type: application/json\r\n", WHOLE);
        if head.starts_with("POST /v1/messages ") { vec![Act::Wait, whole] } else { vec![whole] }
    });
    let mut relay = Relay::start(&provider, &["--max-tokens-total", "2"]);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| ask(&relay, &messages(1)));
        while provider.seen().is_empty() {
            assert!(begun.elapsed() < crate::PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
        let count = request("anthropic", "/v1/messages/count_tokens", r#"{"model":"m","messages":[]}"#);
        assert_eq!(status(&ask(&relay, &count)), "200");
        assert_eq!(status(&relay.ask(&crate::rig::get("/v1/models", ""))), "200");
        provider.go();
        assert_eq!(status(&held.join().unwrap()), "200");
    });
    assert_eq!(status(&ask(&relay, &messages(1))), "402");
    assert_eq!(relay.ended(), Some(5));
}
