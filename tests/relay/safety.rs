//! The key, the token, the headers; and clients that are slow, rude or many.

use crate::rig::{Act, KEY, Provider, Relay, TOKEN, answer, field, get, post, read_until, send, status};

fn body(text: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#)
}

/// BOX B26: the key in a request ends the run, as it stands or in any spelling JSON has for it.
#[test]
fn box_b26_key_in_a_request_ends_the_run() {
    let spelled: String = KEY.chars().map(|c| format!("\\u{:04X}", u32::from(c))).collect();
    let half = KEY.replace("REAL", "R\\u0045AL");
    for request in [
        post("/v1/messages", "", &body(KEY)),
        post("/v1/messages", "", &body(&spelled)),
        post("/v1/messages", "", &body(&half)),
        post("/v1/messages", "", &format!(r#"{{"model":"m","max_tokens":1,"messages":[],"{KEY}":1}}"#)),
        post(&format!("/v1/messages?x={KEY}"), "", &body("")),
        post("/v1/messages", &format!("anthropic-beta: {KEY}\r\n"), &body("")),
        post("/v1/messages", &format!("x-{KEY}: 1\r\n"), &body("")),
    ] {
        let provider = Provider::plain();
        // In sealed mode too, where some of these would be refused for another reason, and the reason would quote them.
        let mode =
            if request.contains('?') || request.contains("anthropic-beta") { "sealed" } else { "key-safe" };
        let mut relay = Relay::start(&provider, &["--log-dir", "log", "--mode", mode]);
        let got = relay.ask(&request);
        assert_eq!(status(&got), "403", "{request}");
        assert!(!got.contains(KEY) && !relay.lines().iter().any(|l| l.contains(KEY)));
        assert_eq!(relay.ended(), Some(3));
        assert!(relay.line("ended: ").contains("key"));
        assert!(provider.seen().is_empty());
        let log = std::fs::read_to_string(relay.dir.join("log/calls.jsonl")).unwrap();
        assert!(!log.contains(KEY) && log.contains("\"end\""), "{log}");
    }
}

/// BOX B11 and U29: an answer that holds the key is cut, however it is split, and ends the run.
#[test]
fn box_b11_a_reflected_key_is_cut() {
    let (a, b) = KEY.split_at(11);
    let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", KEY.len() + 2);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let ways = [
        vec![answer("200 OK", "", KEY)],
        vec![answer("200 OK", &format!("request-id: {KEY}\r\n"), "{}")],
        vec![send(&format!("{length}.{a}")), Act::Wait, send(&format!("{b}."))],
        vec![
            send(&format!("{chunked}b\r\n{a}\r\n")),
            Act::Wait,
            send(&format!("{:x}\r\n{b}\r\n0\r\n\r\n", b.len())),
        ],
        vec![send(&format!("HTTP/1.1 200 OK\r\n\r\n{KEY}")), Act::Close],
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let provider = Provider::start(move |_, _| way.clone());
        let mut relay = Relay::start(&provider, &["--log-dir", "log"]);
        let mut stream = relay.connect();
        stream.write_all(get("/v1/models", "").as_bytes()).unwrap();
        // Lets the first half come on its own.
        std::thread::sleep(std::time::Duration::from_millis(30));
        provider.go();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        let got = String::from_utf8_lossy(&got);
        assert!(!got.contains(KEY) && !got.contains(b) && !got.contains("0\r\n\r\n"), "{got}");
        // Where no framing stands between, not even a beginning that could be the key's has been let through.
        assert!(n == 3 || !got.contains(&a[..4]), "{got}");
        assert_eq!(relay.ended(), Some(3), "{got}");
        assert!(relay.line("ended: ").contains("sent the key back"));
        let records = relay.records();
        assert!(records.iter().any(|r| r["ended"] == "key-reflected"), "{records:?}");
    }
}

/// BOX B11: the provider's words about a bad key may quote it.
#[test]
fn box_b11_401_and_403_speak_our_words() {
    for code in ["401 Unauthorized", "403 Forbidden"] {
        let quoted = format!("invalid key ...{}", &KEY[KEY.len() - 6..]);
        let provider = Provider::start(move |_, _| vec![answer(code, "x-hint: hint\r\n", &quoted)]);
        let relay = Relay::start(&provider, &["--log-dir", "log"]);
        let got = relay.ask(&post("/v1/messages", "", &body("")));
        assert_eq!(status(&got), &code[..3]);
        assert!(!got.contains("...") && !got.contains("hint") && got.contains("\"type\":\"error\""), "{got}");
        let records = relay.records();
        assert!(
            records
                .iter()
                .any(|r| r["kind"] == "outcome" && r["status"] == code[..3].parse::<u16>().unwrap())
        );
    }
}

/// TRAPS 48: the target that is forwarded is the one that was matched.
#[test]
fn trap_48_absolute_form_and_fragments() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    for target in [
        "http://evil.test/v1/models",
        "/v1/models#/../../v1/files",
        "//evil.test/v1/models",
        "/v1/models/../files",
    ] {
        let got = relay.ask(&get(target, ""));
        assert!(matches!(status(&got), "400" | "403"), "{target}: {got}");
    }
    assert!(provider.seen().is_empty());
    relay.ask(&get("/v1/models?limit=1&x=%2e%2e", ""));
    assert!(provider.seen()[0].head.starts_with("GET /v1/models?limit=1&x=%2e%2e HTTP/1.1\r\n"));
}

/// TRAPS 49: the whole path is matched, without its query: no prefix of a route passes, and no route in a query does.
#[test]
fn trap_49_paths_and_queries() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    for path in [
        "/v1/modelsx",
        "/v1/models/../files",
        "/v1/files?/v1/models",
        "/v1/files?x=/v1/messages",
        "/v1",
        "/",
        "/v1/messages/batches",
    ] {
        assert_eq!(status(&relay.ask(&get(path, ""))), "403", "{path}");
    }
    // A route is a path with its method.
    assert_eq!(status(&relay.ask(&get("/v1/messages", ""))), "403");
    assert_eq!(status(&relay.ask(&post("/v1/models", "", &body("")))), "403");
    assert!(provider.seen().is_empty());
    assert_eq!(status(&relay.ask(&get("/v1/models?limit=3&x=/v1/files", ""))), "200");
    assert!(provider.seen()[0].head.starts_with("GET /v1/models?limit=3&x=/v1/files HTTP/1.1\r\n"));
}

/// TRAPS 70: HTTP/1.0 is not spoken, so no answer in chunks can reach a client that does not know them.
#[test]
fn trap_70_no_http_1_0() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let got = relay.ask(&get("/v1/models", "").replace("HTTP/1.1", "HTTP/1.0"));
    assert_eq!(status(&got), "505");
    assert!(!got.to_ascii_lowercase().contains("transfer-encoding") && provider.seen().is_empty(), "{got}");
}

/// TRAPS 91: which flag lifts a refusal is told to the operator, never to the agent.
#[test]
fn trap_91_the_remedy_is_the_operators() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &["--allow-model", "other"]);
    let got = relay.ask(&post("/v1/messages", "", &body("x")));
    assert_eq!(status(&got), "403");
    assert!(!got.contains("--"), "{got}");
    assert!(relay.line("REFUSED POST /v1/messages").contains("(--allow-model)"));
}

/// TRAPS 50: what follows a refused request is not served.
#[test]
fn trap_50_refused_body_is_no_next_request() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let inner = get("/v1/models", "");
    let got = relay.ask(&post("/v1/files", "", &inner));
    assert_eq!((status(&got), got.matches("HTTP/1.1").count()), ("403", 1), "{got}");
    assert!(provider.seen().is_empty());
}

/// TRAPS 51: no token, an empty one, two of them.
#[test]
fn trap_51_tokens() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let with = |fields: &str| format!("GET /v1/models HTTP/1.1\r\nHost: relay.test\r\n{fields}\r\n");
    for (fields, want) in [
        ("", "401"),
        ("x-api-key:\r\n", "401"),
        ("x-api-key: RUNTOKE\r\n", "401"),
        ("x-api-key: RUNTOKENX\r\n", "401"),
        // As the newer SDKs send it, where there is no x-api-key.
        ("authorization: Bearer RUNTOKEN\r\n", "200"),
        ("authorization: Bearer RUNTOKE\r\n", "401"),
        ("authorization: Basic RUNTOKEN\r\n", "401"),
        ("authorization: Bearer RUNTOKEN\r\nx-api-key: other\r\n", "401"),
        ("authorization: Bearer other\r\nx-api-key: RUNTOKEN\r\n", "200"),
        ("x-api-key: RUNTOKEN\r\nX-API-KEY: RUNTOKEN\r\n", "400"),
        ("x-api-key: RUNTOKEN\r\n", "200"),
    ] {
        assert_eq!(status(&relay.ask(&with(fields))), want, "{fields}");
    }
    // Upstream the key goes in the provider's own header, and what came in the other does not.
    let heads = provider.seen().into_iter().map(|s| s.head.to_lowercase());
    assert!(heads.into_iter().all(|h| !h.contains("runtoken") && !h.contains("authorization")));
}

#[test]
fn bearer_providers() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &["--provider", "openai"]);
    let with =
        |auth: &str| format!("GET /v1/models HTTP/1.1\r\nHost: relay.test\r\nAuthorization: {auth}\r\n\r\n");
    for (auth, want) in [
        ("Bearer RUNTOKEN", "200"),
        ("bEARER RUNTOKEN", "200"),
        ("RUNTOKEN", "401"),
        ("Basic RUNTOKEN", "401"),
    ] {
        let got = relay.ask(&with(auth));
        assert_eq!(status(&got), want, "{auth}");
        // The OpenAI shape of an error.
        assert!(want == "200" || got.contains(r#"{"error":{"#), "{got}");
    }
    let seen = provider.seen();
    assert_eq!(field(&seen[0].head, "authorization").as_deref(), Some(format!("Bearer {KEY}").as_str()));
}

/// TRAPS 63, 64, 65, 66 and U31's head: the head that goes on is the table's, both ways.
#[test]
fn trap_63_to_66_headers() {
    let provider = Provider::start(|_, _| {
        let fields = "Content-Type: application/json\r\nSet-Cookie: a=b\r\nServer: x\r\nRequest-Id: r\r\nAnthropic-RateLimit-Requests-Limit: 5\r\n\
                      Connection: request-id-2\r\nx-api-key: echo\r\n";
        vec![answer("200 OK", fields, "{}")]
    });
    let relay = Relay::start(&provider, &[]);
    let fields = "Authorization: Bearer RUNTOKEN\r\nCookie: a=b\r\nX-Forwarded-For: 1\r\nForwarded: for=1\r\napi-key: k\r\nx-goog-api-key: k\r\n\
                  Proxy-Authorization: Basic eA==\r\nTE: trailers\r\nanthropic-beta: one\r\nanthropic-beta: two\r\nUser-Agent: t/1\r\n\
                  Accept-Encoding: br, gzip;q=0\r\nConnection: keep-alive, x-foo\r\nX-Foo: y\r\nX-HTTP-Method-Override: DELETE\r\n\
                  Upgrade: websocket\r\nExpect: 100-continue\r\n";
    let got = relay.ask(&post("/v1/messages", fields, &body("")));
    let seen = provider.seen();
    let head = &seen[0].head;
    let mut names: Vec<String> =
        head.lines().skip(1).filter_map(|l| l.split_once(':')).map(|(n, _)| n.to_ascii_lowercase()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "accept-encoding",
            "anthropic-beta",
            "anthropic-beta",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "x-api-key"
        ]
    );
    assert_eq!(field(head, "accept-encoding").as_deref(), Some("identity"));
    assert_eq!(field(head, "host"), Some(provider.address.to_string()));
    assert!(!head.contains(TOKEN));
    let answer = got.split("\r\n\r\n").find(|h| h.contains(" 200 OK")).unwrap().to_ascii_lowercase();
    let mut names: Vec<&str> =
        answer.lines().skip(1).filter_map(|l| l.split_once(':')).map(|(n, _)| n).collect();
    names.sort_unstable();
    assert_eq!(names, ["anthropic-ratelimit-requests-limit", "content-length", "content-type", "request-id"]);
}

/// TRAPS 52: a method we do not relay gets JSON too.
#[test]
fn trap_52_other_methods_get_json() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    for method in ["OPTIONS", "PATCH", "PUT", "DELETE"] {
        let got = relay.ask(&get("/v1/models", "").replacen("GET", method, 1));
        assert!(got.starts_with("HTTP/1.1 405") && got.contains("\"type\":\"error\""), "{got}");
    }
}

/// TRAPS 57: a chunked body is read, judged and sent on with a length.
#[test]
fn trap_57_chunked_bodies() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &["--allow-model", "m"]);
    let chunked = |json: &str| {
        let (a, b) = json.split_at(9);
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: relay.test\r\nx-api-key: {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n9;x=y\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\nX: y\r\n\r\n",
            b.len()
        )
    };
    let good = body("");
    assert_eq!(relay.ask(&(chunked(&good) + &chunked(&good))).matches("HTTP/1.1 200").count(), 2);
    assert_eq!(status(&relay.ask(&chunked(&good.replace("\"m\"", "\"n\"")))), "403");
    let seen = provider.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(
        (&seen[0].body, field(&seen[0].head, "content-length")),
        (&good.into_bytes(), Some(seen[0].body.len().to_string()))
    );
}

/// A body byte by byte, a head byte by byte: the same request.
#[test]
fn one_byte_at_a_time() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let mut stream = relay.connect();
    for byte in post("/v1/messages", "", &body("x")).bytes() {
        stream.write_all(&[byte]).unwrap();
    }
    read_until(&mut stream, &mut Vec::new(), "\r\n\r\n{}");
    assert_eq!(provider.seen()[0].body, body("x").into_bytes());
}

/// Every edit is a span: what the policy does not change goes on as it came.
#[test]
fn bytes_outside_the_edits_are_untouched() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &["--max-tokens-cap", "10"]);
    let odd = r#" { "messages" : [ ] , "x":12345678901234567890123.10, "max_tokens":99,"model":"\u006d" ,"s":"\/\ud800" } "#;
    assert_eq!(status(&relay.ask(&post("/v1/messages", "", odd))), "200");
    assert_eq!(String::from_utf8_lossy(&provider.seen()[0].body), odd.replace("99", "10"));
}

/// TRAPS 53: one more connection than allowed does not stop the others.
#[test]
fn trap_53_connections_are_capped() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let mut first = relay.connect();
    first.write_all(b"GET /v1/models HTTP/1.1\r\n").unwrap();
    let silent: Vec<_> = (0..sanduk::limits::CONNECTIONS + 20).map(|_| relay.connect()).collect();
    first.write_all(format!("Host: relay.test\r\nx-api-key: {TOKEN}\r\n\r\n").as_bytes()).unwrap();
    read_until(&mut first, &mut Vec::new(), "\r\n\r\n{}");
    drop(silent);
}

#[test]
fn a_signal_ends_it_with_its_number() {
    for (number, code) in [(2, 130), (15, 143), (1, 129)] {
        let provider = Provider::plain();
        let mut relay = Relay::start(&provider, &[]);
        relay.signal(number);
        assert_eq!(relay.ended(), Some(code));
    }
}

/// Neither argv nor environment nor a readable `/proc` entry of the process holds the key.
#[test]
fn key_is_not_in_proc() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    for name in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{}/{name}", relay.pid())).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&text).contains(KEY), "{name}");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", relay.pid())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("Seccomp:\t2"), "{status}");
}
