//! The usage reader against recorded shapes of real servers (`tests/data/usage_vectors.jsonl`): as they arrive, byte by byte, in
//! sevens and whole.

use sanduk::catalog::providers::Protocol;
use sanduk::relay::usage::{Reader, Usage};
use serde_json::Value;

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
        reader.push(piece);
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
    let same_cost = match (usage.cost, want["cost"].as_f64()) {
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

#[test]
fn every_vector_in_four_splits() {
    let (mut count, mut faults) = (0, Vec::new());
    for line in VECTORS.lines() {
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
    assert_eq!(count, 192);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
