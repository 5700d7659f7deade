//! The checks of a peer and of a request's head, in the order in which `conn` makes them. Pure but for the counters in `Serving`.

use crate::catalog::providers::{Provider, Route, Scheme, Values};
use crate::limits::SHOWN_CHARS;
use crate::relay::leak;
use crate::relay::policy_fields::remedy;
use crate::relay::policy_read::chooses_model;
use crate::relay::refuse::Refusal;
use crate::relay::serving::Serving;
use crate::relay::start::Grants;
use crate::sys::net::Conn;
use crate::wire::http::{self, Field, Framing, Request};
use crate::wire::text;

/// Over a Unix socket: the peer has the uid of the box. Over TCP there is no peer to ask.
pub fn ours(relay: &Serving, conn: &Conn) -> bool {
    relay.peer_uid.is_none_or(|uid| conn.peer().is_ok_and(|peer| peer.uid == uid))
}

/// The box does not have the key, so a head that holds it says that it has leaked. Before anything of the head is judged, or could be
/// quoted in a record.
pub fn keyless(relay: &Serving, head: &Request<'_>) -> Result<(), Refusal> {
    relay.guard.request(head.method.as_bytes(), &relay.body_bytes)?;
    relay.guard.request(head.target.as_bytes(), &relay.body_bytes)?;
    let words = head.fields.iter().flat_map(|f| [f.name.as_bytes(), f.value]);
    words.into_iter().try_for_each(|word| relay.guard.request(word, &relay.body_bytes))
}

/// `Host` is one of our names: a browser that was made to resolve a stranger's name to us sends the stranger's (DNS rebinding).
pub fn host(relay: &Serving, head: &Request<'_>) -> Result<(), Refusal> {
    let Some(value) = http::one(&head.fields, "host")? else {
        return Err(Refusal::new(400, "there is no Host"));
    };
    if relay.hosts.iter().any(|h| h.as_bytes().eq_ignore_ascii_case(value)) {
        return Ok(());
    }
    Err(Refusal::new(421, "this relay does not answer to that Host"))
}

/// The run token, once, in the provider's own header; where that is absent, in another that its clients use.
pub fn token(relay: &Serving, head: &Request<'_>) -> Result<(), Refusal> {
    let provider = &relay.provider;
    let own = (provider.auth_header.as_str(), provider.auth_scheme);
    let also = provider.token_also.iter().map(|(name, scheme)| (name.as_str(), *scheme));
    for (name, scheme) in std::iter::once(own).chain(also) {
        let Some(value) = http::one(&head.fields, name)? else { continue };
        // The first that is there decides: two chances would be two readings.
        return match presented(scheme, value) {
            Some(given) if relay.token.same(given) => Ok(()),
            _ => Err(Refusal::new(401, format!("what is in {name} is not the run token"))),
        };
    }
    Err(Refusal::new(401, format!("the run token is not in {}", provider.auth_header)))
}

/// The credential in a header's value. The scheme's name is case-insensitive (RFC 9110 11.1).
fn presented(scheme: Scheme, value: &[u8]) -> Option<&[u8]> {
    match scheme {
        Scheme::Bare => Some(value),
        Scheme::Bearer => {
            let (name, token) = value.split_at_checked(7)?;
            name.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
        }
    }
}

/// Method and path are in the provider's table, byte for byte.
pub fn route<'r>(relay: &'r Serving, head: &Request<'_>) -> Result<&'r Route, Refusal> {
    if !matches!(head.method, "GET" | "POST") {
        return Err(Refusal::new(405, "only GET and POST are relayed"));
    }
    relay.provider.route(head.method, head.path).ok_or_else(|| {
        let mut refusal = Refusal::new(403, "this path is not relayed for this provider");
        refusal.remedy = "the path must be in the provider's route table".into();
        refusal
    })
}

/// The body is, or says it is, what the policy can read: JSON in UTF-8, not compressed, and present where one is needed.
pub fn content(head: &Request<'_>) -> Result<(), Refusal> {
    let unsupported = |why: &str| Err(Refusal::new(415, why));
    if let Some(coding) = http::one(&head.fields, "content-encoding")?
        && !coding.eq_ignore_ascii_case(b"identity")
    {
        return unsupported("a compressed request body cannot be judged");
    }
    if let Some(value) = http::one(&head.fields, "content-type")? {
        let mut parts = value.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        if !parts.next().is_some_and(|t| t.eq_ignore_ascii_case(b"application/json")) && head.method == "POST"
        {
            return unsupported("only application/json is relayed");
        }
        if parts.any(|p| charset(p).is_some_and(|c| !c.eq_ignore_ascii_case(b"utf-8"))) {
            return unsupported("only UTF-8 is relayed");
        }
    }
    match (head.method, head.framing) {
        ("POST", Framing::None) => {
            Err(Refusal::new(411, "there is neither Content-Length nor Transfer-Encoding"))
        }
        ("GET", Framing::None | Framing::Length(0)) | ("POST", _) => Ok(()),
        _ => Err(Refusal::new(400, "a GET has no body here")),
    }
}

/// The value of a `charset` parameter, without quotes. White space around the equals sign is no grammar, and some read on over it.
fn charset(parameter: &[u8]) -> Option<&[u8]> {
    let at = parameter.iter().position(|b| *b == b'=')?;
    let (name, value) = parameter.split_at_checked(at)?;
    if !name.trim_ascii().eq_ignore_ascii_case(b"charset") {
        return None;
    }
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    Some(value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value))
}

/// With a list of models no query may choose one: there are gateways that prefer it to the body's.
fn model(grants: &Grants, head: &Request<'_>) -> Result<(), Refusal> {
    if grants.allow_models.is_empty() || head.method != "POST" {
        return Ok(());
    }
    let parameters = head.query.unwrap_or_default().split(['&', ';']);
    let mut names = parameters.map(|p| p.split_once('=').map_or(p, |(name, _)| name));
    match names.find(|name| chooses_model(&leak::percent_decoded(name.as_bytes()))) {
        None => Ok(()),
        Some(name) => {
            let why = format!("{} in the query may choose another model", text::short(name, SHOWN_CHARS));
            Err(Refusal { remedy: "--allow-model".into(), ..Refusal::new(403, why) })
        }
    }
}

/// The query and the values of headers that switch something on: in sealed mode they are among those the provider's file lists.
pub fn switches(
    provider: &Provider,
    grants: &Grants,
    route: &Route,
    head: &Request<'_>,
) -> Result<(), Refusal> {
    model(grants, head)?;
    if !grants.sealed {
        return Ok(());
    }
    if let Some(query) = head.query {
        listed_query(route, query, grants)?;
    }
    for (name, values) in &provider.header_values {
        for field in head.fields.iter().filter(|f| f.name.eq_ignore_ascii_case(name)) {
            listed_value(name, values, field.value, grants)?;
        }
    }
    Ok(())
}

/// Each parameter is listed and stands once; nothing is decoded, so an escape is no parameter of ours.
fn listed_query(route: &Route, query: &str, grants: &Grants) -> Result<(), Refusal> {
    let mut left: Vec<&str> = route.query.iter().map(String::as_str).collect();
    for parameter in query.split('&') {
        match left.iter().position(|listed| same_parameter(listed, parameter)) {
            Some(at) => drop(left.swap_remove(at)),
            None if grants.allow_fields.iter().any(|f| f.strip_prefix('?') == Some(parameter)) => {}
            None => return Err(unlisted("the query", parameter, format!("?{parameter}"))),
        }
    }
    Ok(())
}

/// `name=value` exactly, `name=#` with up to six digits, `name=*` with a word.
fn same_parameter(listed: &str, given: &str) -> bool {
    let value = |end: &str| {
        let start = listed.strip_suffix(end).filter(|s| s.ends_with('='))?;
        given.strip_prefix(start).filter(|v| !v.is_empty())
    };
    listed == given
        || value("#").is_some_and(|v| v.len() <= 6 && v.bytes().all(|b| b.is_ascii_digit()))
        || value("*").is_some_and(|v| {
            v.len() <= 128 && v.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        })
}

/// The value, or each element of a list, is one of those that pass. An empty element says nothing (RFC 9110 5.6.1).
fn listed_value(name: &str, values: &Values, given: &[u8], grants: &Grants) -> Result<(), Refusal> {
    let pieces = given.split(|b| values.list && *b == b',').map(<[u8]>::trim_ascii);
    for piece in pieces.filter(|p| !(values.list && p.is_empty())) {
        let is = |one: &String| one.as_bytes() == piece;
        let named = |f: &String| {
            let value = f.strip_prefix(name).and_then(|f| f.strip_prefix('='));
            value.is_some_and(|v| v.as_bytes() == piece)
        };
        let server = values.server.iter().any(is);
        if values.pass.iter().any(is)
            || (server && grants.allow_server_tools)
            || grants.allow_fields.iter().any(named)
        {
            continue;
        }
        let shown = String::from_utf8_lossy(piece);
        let mut refusal = unlisted(name, &shown, format!("{name}={shown}"));
        if server {
            refusal.remedy = "--allow-server-tools".into();
        }
        return Err(refusal);
    }
    Ok(())
}

fn unlisted(what: &str, given: &str, place: String) -> Refusal {
    let mut refusal =
        Refusal::new(403, format!("{what} \"{}\" is not allowed here", text::short(given, SHOWN_CHARS)));
    refusal.remedy = remedy(&place);
    refusal
}

/// Fields a head may hold once, because two readers could each take another one (B44).
pub fn singletons(fields: &[Field<'_>]) -> Result<(), Refusal> {
    for name in ["content-type", "content-encoding", "authorization", "x-api-key"] {
        http::one(fields, name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{charset, content, presented};
    use crate::catalog::providers::Scheme;
    use crate::wire::http::{Field, Framing, Request};

    #[test]
    fn bearer_is_read_exactly() {
        let yes: &[(&[u8], &[u8])] =
            &[(b"Bearer T", b"T"), (b"bearer  T ", b"T"), (b"BEARER T", b"T"), (b"Bearer ", b"")];
        for (value, token) in yes {
            assert_eq!(presented(Scheme::Bearer, value), Some(*token));
        }
        for value in [&b"T"[..], b"", b"Basic T", b"BearerT", b"Bearer\tT"] {
            assert_eq!(presented(Scheme::Bearer, value), None, "{value:?}");
        }
        assert_eq!(presented(Scheme::Bare, b"Bearer T"), Some(&b"Bearer T"[..]));
    }

    fn status(method: &str, framing: Framing, fields: &[(&str, &str)]) -> u16 {
        let fields = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
        let head = Request {
            method,
            target: "/",
            path: "/",
            query: None,
            fields,
            framing,
            close: false,
            expect_continue: false,
        };
        content(&head).map_or_else(|r| r.status, |()| 200)
    }

    #[test]
    fn content_is_json_in_utf8() {
        let post = |v: &str| status("POST", Framing::Length(2), &[("Content-Type", v)]);
        for v in ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\""]
        {
            assert_eq!(post(v), 200, "{v}");
        }
        for v in [
            "application/json; charset=utf-16",
            "text/plain",
            "multipart/form-data",
            "",
            "application/jsonx",
            "application/json;charset=utf-7",
            "application/json; charset = utf-16",
            "application/json; charset =utf-8; charset= utf-16",
        ] {
            assert_eq!(post(v), 415, "{v}");
        }
        assert_eq!(status("POST", Framing::Chunked, &[]), 200);
        assert_eq!(status("POST", Framing::None, &[]), 411);
        assert_eq!(status("POST", Framing::Length(2), &[("Content-Encoding", "gzip")]), 415);
        assert_eq!(status("POST", Framing::Length(2), &[("Content-Encoding", "identity")]), 200);
        assert_eq!(
            status(
                "POST",
                Framing::Length(2),
                &[("Content-Type", "application/json"), ("content-type", "text/plain")]
            ),
            400
        );
        assert_eq!(status("GET", Framing::None, &[]), 200);
        assert_eq!(status("GET", Framing::Length(0), &[]), 200);
        assert_eq!(status("GET", Framing::Length(1), &[]), 400);
        assert_eq!(status("GET", Framing::Chunked, &[]), 400);
        assert_eq!(charset(b"boundary=x"), None);
    }
}
