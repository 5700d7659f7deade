//! The usage reader against recorded shapes of real servers (`tests/data/usage_vectors.jsonl`): as they arrive, byte by byte, in
//! sevens and whole.

#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

use flate2::{Compression, write::GzEncoder};
use sanduk::catalog::providers::Protocol;
use sanduk::limits::{INFLATED_BYTES, SSE_EVENT_BYTES, USAGE_ELEMENTS};
use sanduk::relay::usage::{Reader, Usage};
use serde_json::Value;
use std::io::Write;

#[path = "support/mutate.rs"]
#[expect(dead_code, reason = "shared with the fuzz tests")]
mod mutate;

const VECTORS: &str = include_str!("data/usage_vectors.jsonl");

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// The protocol that the route table gives the vector's request.
fn protocol(vector: &Value) -> Protocol {
    let request = &vector["request"];
    let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
    match vector["protocol"].as_str().unwrap() {
        _ if method == "DELETE" || path == "/v1/models" => Protocol::Plain,
        _ if path.ends_with("/count_tokens") || path.ends_with("/input_tokens") => Protocol::CountTokens,
        "chat" => Protocol::Chat,
        "anthropic" => Protocol::Messages,
        "responses" => Protocol::Responses,
        other => panic!("protocol {other}"),
    }
}

fn read(vector: &Value, pieces: &[&[u8]]) -> Usage {
    let header = |name: &str| vector[name].as_str().unwrap_or_default().as_bytes();
    let mut reader = Reader::new(
        protocol(vector),
        u16::try_from(vector["status"].as_u64().unwrap()).unwrap(),
        header("content_type"),
        header("content_encoding"),
        vector["request"]["stream"] == true,
    );
    for piece in pieces {
        reader.push(piece, &mut |_| {});
    }
    reader.finish()
}

/// One line per difference.
fn differences(vector: &Value, usage: &Usage) -> Vec<String> {
    let want = &vector["expect"];
    let mut out = Vec::new();
    for (name, got) in [
        ("in", usage.input),
        ("cache_write", usage.cache_write),
        ("cache_read", usage.cache_read),
        ("out", usage.output),
        ("reasoning", usage.reasoning),
    ] {
        if got != want[name].as_u64() {
            out.push(format!("{name}: {got:?}, want {}", want[name]));
        }
    }
    let same_cost = match (usage.cost.map(|c| c.dollars()), want["cost"].as_f64()) {
        (Some(got), Some(want)) => (got - want).abs() <= want * 1e-9,
        (got, want) => got == want,
    };
    if !same_cost {
        out.push(format!("cost: {:?}, want {}", usage.cost, want["cost"]));
    }
    if usage.owed != (vector["owed"] == true) {
        out.push(format!("owed: {}", usage.owed));
    }
    if usage.complete != (vector["complete"] == true) {
        out.push(format!("complete: {}", usage.complete));
    }
    out
}

/// How many lines there were, and every difference.
fn compare(vectors: &str) -> (usize, Vec<String>) {
    let (mut count, mut faults) = (0, Vec::new());
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let chunks: Vec<Vec<u8>> =
            vector["chunks"].as_array().unwrap().iter().map(|c| hex(c.as_str().unwrap())).collect();
        let whole = chunks.concat();
        let splits: [(&str, Vec<&[u8]>); 4] = [
            ("as given", chunks.iter().map(Vec::as_slice).collect()),
            ("whole", vec![&whole]),
            ("sevens", whole.chunks(7).collect()),
            ("bytes", whole.chunks(1).collect()),
        ];
        for (split, pieces) in splits {
            for difference in differences(&vector, &read(&vector, &pieces)) {
                faults.push(format!("{} ({split}): {difference}", vector["id"]));
            }
        }
        count += 1;
    }
    (count, faults)
}

#[test]
fn every_vector_in_four_splits() {
    let (count, faults) = compare(VECTORS);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(count >= 192, "{count}");
}

/// An advisor's rounds are another model's: told apart, and never lost to a cap of tokens.
#[test]
fn tokens_of_an_advisor() {
    for (id, tokens) in
        [("anth-advisor", 140 + 66), ("anth-compaction", 0), ("anth-fallback", 0), ("anth-plain", 0)]
    {
        let vectors = VECTORS.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        let vector = vectors.into_iter().find(|v| v["id"] == id).unwrap();
        let chunks: Vec<Vec<u8>> =
            vector["chunks"].as_array().unwrap().iter().map(|c| hex(c.as_str().unwrap())).collect();
        assert_eq!(read(&vector, &[&chunks.concat()]).elsewhere, tokens, "{id}");
    }
}

/// `SANDUK_VECTORS=FILE`: more of the same kind.
#[test]
fn vectors_from_elsewhere() {
    let Ok(path) = std::env::var("SANDUK_VECTORS") else {
        println!("skipped: SANDUK_VECTORS is not set");
        return;
    };
    let (count, faults) = compare(&std::fs::read_to_string(path).unwrap());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(count > 0);
}

fn tell(protocol: Protocol, encoding: &[u8], pieces: &[&[u8]]) -> Usage {
    let mut reader = Reader::new(protocol, 200, b"", encoding, true);
    for piece in pieces {
        reader.push(piece, &mut |_| {});
    }
    reader.finish()
}

fn counts(usage: &Usage) -> (Option<u64>, Option<u64>) {
    (usage.input, usage.output)
}

const CHAT: &[u8] = br#"{"model":"kelp","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":4}}"#;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn what_is_not_generated_is_not_read() {
    for protocol in [Protocol::Plain, Protocol::CountTokens] {
        assert_eq!(tell(protocol, b"", &[CHAT]), Usage { complete: true, ..Usage::default() });
    }
    // A coding that is not ours: billed, amount unknown.
    for coding in [&b"br"[..], b"zstd", b"gzip, gzip", b"deflate"] {
        assert_eq!(tell(Protocol::Chat, coding, &[CHAT]), Usage { owed: true, ..Usage::default() });
    }
    assert_eq!(counts(&tell(Protocol::Chat, b" Identity ", &[CHAT])), (Some(11), Some(4)));
    // An error page is no stream that was cut.
    let mut page = Reader::new(Protocol::Chat, 502, b"text/html", b"", true);
    page.push(b"<html>bad gateway</html>", &mut |_| {});
    assert_eq!(page.finish(), Usage { complete: true, ..Usage::default() });
    assert_eq!(tell(Protocol::Chat, b"", &[CHAT]).model.as_deref(), Some("kelp"));
}

#[test]
fn trap_76_large_answers_keep_their_usage() {
    let filler = br#"{"a":"a line of text, \"quoted\" and \u00e9","b":[1,2,{"usage":{"prompt_tokens":9}}]},"#
        .repeat(130_000);
    let usage = br#""usage":{"prompt_tokens":11,"completion_tokens":4}"#;
    let choices = [&b"\"choices\":["[..], &filler, b"{}]"].concat();
    let first = [&b"{"[..], usage, b",", &choices, b"}"].concat();
    let last = [&b"{"[..], &choices, b",", usage, b"}"].concat();
    assert!(first.len() > 10_000_000);
    for body in [&first, &last] {
        let pieces: Vec<&[u8]> = body.chunks(65_536).collect();
        let told = tell(Protocol::Chat, b"", &pieces);
        assert_eq!((counts(&told), told.complete), ((Some(11), Some(4)), true));
    }
    // An event over the limit is lost, whole; the ones around it are not.
    let long = [b"data: {\"x\":\"".to_vec(), vec![b'x'; SSE_EVENT_BYTES], b"\"}\n\n".to_vec()].concat();
    let event = [b"data: ", CHAT, b"\n\n"].concat();
    assert_eq!(counts(&tell(Protocol::Chat, b"", &[&long, &event])), (Some(11), Some(4)));
    assert_eq!(counts(&tell(Protocol::Chat, b"", &[&event, &long])), (Some(11), Some(4)));
}

#[test]
fn gzip_is_bounded_and_a_fault_loses_only_what_is_behind_it() {
    let event = [b"data: ", CHAT, b"\n\n"].concat();
    let start = gzip(&event);
    // A bomb: thousands of bytes out of each, then the usage.
    let bomb = gzip(&[b"data: ".to_vec(), vec![b' '; 4_000_000], b"\n\n".to_vec(), event.clone()].concat());
    assert!(bomb.len() * 200 < 4_000_000 && bomb.len() < 20_000);
    assert_eq!(tell(Protocol::Chat, b"gzip", &[&bomb]), Usage { owed: true, ..Usage::default() });
    assert_eq!(counts(&tell(Protocol::Chat, b"gzip", &[&start, &bomb])), (Some(11), Some(4)));
    // Not a bomb, but too long.
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b"abcdefgh0123456789"[usize::try_from(state >> 60).unwrap()]
    };
    let line = [&b": "[..], &(0..65_536).map(|_| noise()).collect::<Vec<u8>>(), b"\n"].concat();
    let times = usize::try_from(INFLATED_BYTES).unwrap() / line.len() + 1;
    let mut long: Vec<Vec<u8>> = vec![gzip(&line); times];
    long.push(gzip(&event));
    let pieces: Vec<&[u8]> = long.iter().map(Vec::as_slice).collect();
    assert_eq!(counts(&tell(Protocol::Chat, b"gzip", &pieces)), (None, None));
    assert_eq!(counts(&tell(Protocol::Chat, b"gzip", &pieces[times - 5..])), (Some(11), Some(4)));
    // Empty members, header fields, and every split.
    let name = [&[0x1f, 0x8b, 8, 0x08, 0, 0, 0, 0, 0, 3][..], b"n.txt\0", &gzip(&event)[10..]].concat();
    let members = [gzip(b""), gzip(b"data: {}\n"), gzip(b""), gzip(b"\n"), name, gzip(b"")].concat();
    for size in [1, 2, 3, 7, 100, members.len()] {
        let pieces: Vec<&[u8]> = members.chunks(size).collect();
        let told = tell(Protocol::Chat, b"gzip", &pieces);
        assert_eq!((counts(&told), told.complete), ((Some(11), Some(4)), true), "pieces of {size}");
    }
    // Cut or broken behind the usage.
    let two = [start.clone(), gzip(b"data: {}\n\n")].concat();
    assert_eq!(counts(&tell(Protocol::Chat, b"gzip", &[&two[..two.len() - 12]])), (Some(11), Some(4)));
    assert_eq!(counts(&tell(Protocol::Chat, b"gzip", &[&start, b"garbage", &start])), (Some(11), Some(4)));
}

fn told(usage: &str) -> Usage {
    tell(Protocol::Chat, b"", &[format!("{{\"usage\":{usage}}}").as_bytes()])
}

/// Money that is no money would free a budget or poison it.
#[test]
fn trap_75_money_that_is_none() {
    for (cost, want) in [
        ("0", Some(0.0)),
        ("\"0.5\"", Some(0.5)),
        ("5e-05", Some(5e-05)),
        ("-1", None),
        ("NaN", None),
        ("\"nan\"", None),
        ("1e999", None),
        ("null", None),
    ] {
        assert_eq!(
            told(&format!("{{\"prompt_tokens\":1,\"cost\":{cost}}}")).cost.map(|c| c.dollars()),
            want,
            "{cost}"
        );
    }
}

/// Another family's names are not zeros.
#[test]
fn trap_77_what_is_not_declared_is_unknown() {
    assert_eq!(counts(&told(r#"{"inputTokens":5,"outputTokens":5}"#)), (None, None));
    let none = tell(Protocol::Messages, b"", &[CHAT]);
    assert_eq!((counts(&none), none.owed), ((None, None), true));
}

#[test]
fn what_a_count_is() {
    for (count, want) in [
        ("12", Some(12)),
        ("12.0", Some(12)),
        ("1.2e1", Some(12)),
        ("\" 12 \"", Some(12)),
        ("11.2", Some(12)),
        ("9007199254740991", Some(9_007_199_254_740_991)),
        ("9007199254740992", None),
        ("-1", None),
        ("true", None),
        ("NaN", None),
        ("1e400", None),
        ("\"inf\"", None),
        ("\"0x10\"", None),
        ("\"\"", None),
        ("[12]", None),
        ("{\"a\":12}", None),
    ] {
        assert_eq!(told(&format!("{{\"prompt_tokens\":{count}}}")).input, want, "{count}");
    }
    // The total shows that the cached tokens are outside the input count.
    let outside = told(
        r#"{"prompt_tokens":50,"completion_tokens":8,"total_tokens":88,"prompt_tokens_details":{"cached_tokens":30}}"#,
    );
    assert_eq!((outside.input, outside.cache_read, outside.output), (Some(50), Some(30), Some(8)));
}

#[test]
fn rounds_beside_the_top_level() {
    let body = |kinds: &str| {
        format!(
            r#"{{"usage":{{"input_tokens":31,"output_tokens":12,"iterations":[{kinds}]}},"stop_reason":"end_turn"}}"#
        )
    };
    let round = |kind: &str| {
        format!(r#"{{"type":"{kind}","input_tokens":240,"cache_read_input_tokens":7,"output_tokens":28}}"#)
    };
    let told = tell(
        Protocol::Messages,
        b"",
        &[body(&[round("compaction"), round("message"), round("compaction")].join(",")).as_bytes()],
    );
    assert_eq!((told.input, told.cache_read, told.output), (Some(511), Some(14), Some(68)));
    // More than is looked into: bounded, and the rest still counts.
    let many = vec![round("compaction"); USAGE_ELEMENTS + 50].join(",");
    assert!(tell(Protocol::Messages, b"", &[body(&many).as_bytes()]).output.unwrap() >= 12);
}

/// Prints the reader's speed. `SANDUK_SPEED=1 cargo test --release --test usage speed -- --nocapture`
#[test]
fn speed() {
    if std::env::var_os("SANDUK_SPEED").is_none() {
        println!("skipped: SANDUK_SPEED is not set");
        return;
    }
    let event = br#"data: {"id":"chatcmpl-q1","object":"chat.completion.chunk","created":1700000001,"model":"kelp-mini","choices":[{"index":0,"delta":{"content":"some words "},"finish_reason":null}],"usage":null}

"#;
    let stream = event.repeat(50_000);
    let pieces: Vec<&[u8]> = stream.chunks(65_536).collect();
    let start = std::time::Instant::now();
    tell(Protocol::Chat, b"", &pieces);
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = f64::from(u32::try_from(stream.len()).unwrap()) / 1e6;
    println!("{:.0} MB/s, {:.2} us an event", megabytes / seconds, seconds * 1e6 / 50_000.0);
}

/// Events of which nothing is read are told by their first bytes alone: what is counted is the same where a space after the brace keeps
/// them from being told so. Streams of all orders, good and bad.
#[test]
fn events_of_content_change_nothing() {
    const EVENTS: [(Protocol, &str, &str); 16] = [
        (
            Protocol::Messages,
            "message_start",
            r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":9,"output_tokens":1}}}"#,
        ),
        (
            Protocol::Messages,
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"words \n"}}"#,
        ),
        (
            Protocol::Messages,
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"type":"message_delta","usage":{"output_tokens":70}}"#,
        ),
        (
            Protocol::Messages,
            "content_block_delta",
            r#"{"type":"content_block_delta","t\u0079pe":"messa\u0067e_delta","usage":{"output_tokens":71}}"#,
        ),
        (
            Protocol::Messages,
            "content_block_delta",
            r#"{"type":"content_block_delta","error":{"type":"overloaded"}}"#,
        ),
        (Protocol::Messages, "message_delta", r#"{"type":"content_block_delta","index":0}"#),
        (
            Protocol::Messages,
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}"#,
        ),
        (Protocol::Messages, "error", r#"{"type":"error","error":{"type":"overloaded_error"}}"#),
        (
            Protocol::Responses,
            "response.created",
            r#"{"type":"response.created","response":{"id":"r","model":"m"}}"#,
        ),
        (
            Protocol::Responses,
            "response.output_text.delta",
            r#"{"type":"response.output_text.delta","item_id":"i","delta":"words"}"#,
        ),
        (
            Protocol::Responses,
            "response.output_text.delta",
            r#"{"type":"response.output_text.delta","response":{"id":"r","usage":{"input_tokens":3,"output_tokens":80}}}"#,
        ),
        (
            Protocol::Responses,
            "response.output_text.delta",
            r#"{"type":"response.output_text.delta","type":"response.completed"}"#,
        ),
        (
            Protocol::Responses,
            "response.output_text.delta",
            r#"{"type":"response.output_text.delta","type":"error"}"#,
        ),
        (Protocol::Responses, "response.failed", r#"{"type":"response.failed","response":{"id":"r"}}"#),
        (Protocol::Responses, "error", r#"{"type":"error","message":"no"}"#),
        (
            Protocol::Responses,
            "response.completed",
            r#"{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":3,"output_tokens":4}}}"#,
        ),
    ];
    let mut random = mutate::Random::new(mutate::seed());
    for round in 0..5000 {
        let of = [Protocol::Messages, Protocol::Responses][random.below(2)];
        let own: Vec<_> = EVENTS.iter().filter(|e| e.0 == of).collect();
        let (mut told, mut walked) = (String::new(), String::new());
        for _ in 0..random.below(6) {
            let (_, name, data) = own[random.below(own.len())];
            told += &format!("event: {name}\ndata: {data}\n\n");
            walked += &format!("event: {name}\ndata: {}\n\n", data.replacen('{', "{ ", 1));
        }
        let usage = |text: &str| tell(of, b"", &[text.as_bytes()]);
        assert_eq!(usage(&told), usage(&walked), "{round}: {told}");
    }
}
