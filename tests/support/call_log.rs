//! Call logs made record by record. For `tests/log_read.rs` and `tests/audit.rs`.

use sanduk::relay::note::Denied;
use sanduk::relay::record::{
    Again, Counts, End, Line, NO_PREV, Outcome, Record, Resumed, Start, VERSION, Verdict,
};
use sanduk::relay::start::Grants;
use sanduk::wire::digest::sha256_hex;
use sanduk::wire::money::Money;

pub fn start(resumed: Option<Resumed>) -> Record {
    let (version, provider, upstream) = ("0.1.0".into(), "p".into(), "https://p".into());
    let grants = Grants { allow_models: vec!["m".into()], ..Grants::default() };
    Record::Start(Start {
        v: VERSION,
        version,
        provider,
        upstream,
        resumed,
        grants,
        caps: None,
        secrets: Some(vec!["CI_TOKEN".into()]),
    })
}

pub fn verdict(call: u64) -> Record {
    let (method, path, clamped) = ("POST".into(), "/v1/x".into(), vec!["max_tokens=9".into()]);
    let (reserved_picodollars, reserved_tokens) = (Some(Money::from_picos(9)), None);
    Record::Verdict(Verdict {
        call,
        method,
        path,
        bytes: 3,
        model: None,
        streamed: false,
        clamped,
        reserved_picodollars,
        reserved_tokens,
        body: None,
    })
}

pub fn outcome(call: u64) -> Record {
    tried(call, 1)
}

/// Of a call that was sent so often.
pub fn tried(call: u64, tries: u32) -> Record {
    let counts = Counts { input: Some(1), cost: Some(0.5), model: Some("m".into()), ..Counts::default() };
    let (charged_picodollars, charged_tokens) = (None, Some(7));
    let ended = "whole".into();
    Record::Outcome(Outcome {
        call,
        status: 200,
        ended,
        bytes: 2,
        millis: 1,
        tries,
        charged_picodollars,
        charged_tokens,
        counts,
        body: None,
    })
}

pub fn denied() -> Record {
    let (method, path, why) = ("GET".into(), "/x".into(), "no".into());
    Record::Denied(Denied { method, path, status: 403, why, remedy: String::new() })
}

pub fn end() -> Record {
    Record::End(End { why: "x".into() })
}

pub fn log(records: &[Record]) -> Vec<u8> {
    let (mut all, mut prev) = (Vec::new(), NO_PREV.to_string());
    for (record, n) in records.iter().zip(1..) {
        let line = serde_json::to_vec(&Line { n, prev: &prev, at_ms: 7, record }).unwrap();
        prev = sha256_hex(&line);
        all.extend_from_slice(&line);
        all.push(b'\n');
    }
    all
}

/// One of every kind, twice started, one call left open.
pub fn every_kind() -> Vec<Record> {
    let found = Resumed { lines: 4, calls: 2, open: 1, torn: 3 };
    let again = Record::DeniedAgain(Again { times: 4 });
    vec![
        start(None),
        verdict(1),
        verdict(2),
        outcome(2),
        start(Some(found)),
        verdict(3),
        denied(),
        again,
        outcome(3),
        end(),
    ]
}
