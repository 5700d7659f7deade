//! Builds the head that goes upstream: from the provider's table, never copied from the client's, with the client's credential
//! left out and ours put in. Demands a `Judged`: no verdict, no key. The only place where the key becomes bytes on a wire.

use crate::catalog::providers::{Provider, Scheme};
use crate::relay::policy::Judged;
use crate::secret::Secret;
use crate::wire::head::Writer;
use crate::wire::http::{Bad, Field};

/// What of a request goes upstream besides its body.
pub struct Outgoing<'a> {
    /// `GET` or `POST`.
    pub method: &'a str,
    /// Path and query exactly as they were admitted.
    pub target: &'a str,
    /// The client's fields; the table picks from them.
    pub fields: &'a [Field<'a>],
    /// Bytes of the body as it is sent; none: no body.
    pub length: Option<usize>,
}

/// The head as bytes. It holds the key, so it is a `Secret` itself and is wiped when the call is over. `room`: memory for it.
pub fn head(
    judged: &Judged,
    provider: &Provider,
    host: &str,
    key: &Secret,
    out: &Outgoing<'_>,
    room: Vec<u8>,
) -> Result<Secret, Bad> {
    // Nothing of it is needed here: that it exists is the point.
    let _: &Judged = judged;
    let mut w = Writer::request_in(room, out.method, out.target)?;
    w.field("host", host.as_bytes())?;
    if !key.is_empty() {
        let scheme: &[u8] = match provider.auth_scheme {
            Scheme::Bare => b"",
            Scheme::Bearer => b"Bearer ",
        };
        #[expect(clippy::disallowed_methods, reason = "KEY-23 key into the upstream's credential header")]
        w.joined(&provider.auth_header, [scheme, key.expose()])?;
    }
    for f in out.fields {
        if let Some(name) = passes(provider, f)
            && !named_by_connection(out.fields, name)
        {
            w.field(name, f.value)?;
        }
    }
    w.field("accept-encoding", if offers_gzip(out.fields) { b"gzip" } else { b"identity" })?;
    if let Some(length) = out.length {
        w.field("content-type", b"application/json")?;
        w.number("content-length", u64::try_from(length).unwrap_or(u64::MAX))?;
    }
    Ok(Secret::new(w.end()))
}

/// The field's name as the provider's file spells it.
fn passes<'p>(provider: &'p Provider, f: &Field<'_>) -> Option<&'p str> {
    provider.request_headers.iter().find(|n| n.eq_ignore_ascii_case(f.name)).map(String::as_str)
}

/// True where a `Connection` field names `name`: such a field is for one hop only (RFC 9110 7.6.1).
pub fn named_by_connection(fields: &[Field<'_>], name: &str) -> bool {
    fields
        .iter()
        .filter(|f| f.name.eq_ignore_ascii_case("connection"))
        .flat_map(|f| f.value.split(|b| *b == b','))
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
}

/// The client takes gzip: listed with a weight that is not zero (RFC 9110 12.5.3). Anything else becomes `identity`, because the
/// usage reader decodes nothing else.
fn offers_gzip(fields: &[Field<'_>]) -> bool {
    fields
        .iter()
        .filter(|f| f.name.eq_ignore_ascii_case("accept-encoding"))
        .flat_map(|f| f.value.split(|b| *b == b','))
        .any(|item| {
            let mut parts = item.split(|b| *b == b';').map(<[u8]>::trim_ascii);
            parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip"))
                && parts.all(|p| !zero_weight(p))
        })
}

/// `q=0`, `q=0.`, `q=0.0`…
fn zero_weight(parameter: &[u8]) -> bool {
    let Some((name, value)) = parameter.split_at_checked(2) else {
        return false;
    };
    name.eq_ignore_ascii_case(b"q=") && value.iter().all(|b| matches!(b, b'0' | b'.'))
}

/// The body with the verdict's edits: slices of what came and the replacements between them.
pub fn spliced<'a>(body: &'a [u8], judged: &'a Judged) -> Vec<&'a [u8]> {
    let mut pieces = Vec::with_capacity(judged.edits.len().saturating_mul(2).saturating_add(1));
    let mut at = 0usize;
    for (span, new) in &judged.edits {
        pieces.push(body.get(at..span.start).unwrap_or_default());
        pieces.push(new.as_slice());
        at = span.end;
    }
    pieces.push(body.get(at..).unwrap_or_default());
    pieces
}

#[cfg(test)]
mod tests {
    use super::{Outgoing, head, named_by_connection, offers_gzip};
    use crate::catalog::providers::shipped;
    use crate::relay::policy;
    use crate::secret::Secret;
    use crate::wire::http::Field;

    fn field<'a>(name: &'a str, value: &'a str) -> Field<'a> {
        Field { name, value: value.as_bytes() }
    }

    fn built(provider: &str, key: &str, fields: &[Field<'_>]) -> String {
        let Some(p) = shipped(provider) else { panic!("{provider}") };
        let out = Outgoing { method: "POST", target: "/v1/messages?beta=true", fields, length: Some(7) };
        let key = Secret::new(key.as_bytes().to_vec());
        let Ok(head) = head(&policy::bodyless(), &p, "api.test", &key, &out, Vec::new()) else {
            panic!("refused")
        };
        #[expect(clippy::disallowed_methods, reason = "KEY-24 unit test")]
        let bytes = head.expose();
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn credentials_of_the_box_never_go_on() {
        let fields = [
            field("Host", "relay.test"),
            field("X-Api-Key", "RUNTOKEN"),
            field("Authorization", "Bearer RUNTOKEN"),
            field("api-key", "RUNTOKEN"),
            field("x-goog-api-key", "RUNTOKEN"),
            field("Cookie", "RUNTOKEN"),
            field("Proxy-Authorization", "RUNTOKEN"),
            field("X-Forwarded-For", "RUNTOKEN"),
            field("Expect", "100-continue"),
            field("X-HTTP-Method-Override", "DELETE"),
            field("Content_Length", "3"),
            field("Anthropic-Beta", "a"),
            field("anthropic-beta", "b"),
            field("anthropic-version", "2023-06-01"),
            field("TE", "trailers"),
        ];
        let got = built("anthropic", "REALKEY", &fields);
        assert_eq!(
            got,
            "POST /v1/messages?beta=true HTTP/1.1\r\nhost: api.test\r\nx-api-key: REALKEY\r\nanthropic-beta: a\r\nanthropic-beta: b\r\n\
             anthropic-version: 2023-06-01\r\naccept-encoding: identity\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n"
        );
        assert!(built("openai", "REALKEY", &fields).contains("\r\nauthorization: Bearer REALKEY\r\n"));
        assert!(!built("openai-compat", "", &fields).contains("authorization"));
    }

    /// TRAPS 64: what `Connection` names is for the hop.
    #[test]
    fn trap_64_connection_named_headers() {
        let fields =
            [field("Connection", "close, Anthropic-Version"), field("anthropic-version", "2023-06-01")];
        assert!(named_by_connection(&fields, "anthropic-version"));
        let got = built("anthropic", "K", &fields);
        assert!(!got.contains("anthropic-version") && !got.contains("connection"));
        // The credential that we add cannot be taken off again (B27).
        assert!(built("anthropic", "K", &[field("Connection", "x-api-key")]).contains("x-api-key: K"));
    }

    /// TRAPS 66: a weight of zero is no offer.
    #[test]
    fn trap_66_gzip_weights() {
        for (value, yes) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("br", false),
            ("", false),
            ("*", false),
            ("gzip;q=1", true),
            ("xgzip", false),
        ] {
            assert_eq!(offers_gzip(&[field("Accept-Encoding", value)]), yes, "{value}");
        }
    }
}
