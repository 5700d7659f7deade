//! Asks the provider, with one GET, whether the key is good. The relay's first act, before a box exists. Never follows a
//! redirect: any answer but 401 and 403 counts as "not refused".

use crate::catalog::providers::Provider;
use crate::error::Error;
use crate::limits;
use crate::relay::exchange::{self, Failed};
use crate::relay::inject::{self, Outgoing};
use crate::relay::policy;
use crate::relay::pool::Pool;
use crate::relay::upstream;
use crate::secret::Secret;
use crate::wire::http::Field;

/// Errors: exit 2. Providers without a preflight path pass.
pub fn check(provider: &Provider, pool: &Pool, key: &Secret) -> Result<(), Error> {
    if provider.preflight.is_empty() {
        return Ok(());
    }
    let place = upstream::shown(pool.upstream());
    let fields: Vec<Field<'_>> = provider
        .preflight_headers
        .iter()
        .map(|(name, value)| Field { name, value: value.as_bytes() })
        .collect();
    let out = Outgoing { method: "GET", target: &provider.preflight, fields: &fields, length: None };
    let bad = |why: String| Error::wrong("use the key with", place.clone(), why);
    let host = upstream::host_value(pool.upstream());
    let head = inject::head(&policy::bodyless(), provider, &host, key, &out, Vec::new())
        .map_err(|b| bad(b.why().into()))?;
    let mut buf = vec![0; limits::HEAD_BYTES];
    #[expect(clippy::disallowed_methods, reason = "KEY-26 the head of the preflight, to the provider")]
    let parts = [head.expose()];
    let answer = exchange::ask(pool, &parts, "GET", &mut buf, limits::PREFLIGHT_TIME).map_err(|failed| {
        bad(match failed {
            Failed::Unreachable(e) => format!("it cannot be reached: {e}"),
            Failed::Silent => "it did not answer".into(),
            Failed::Broken(why) => format!("it gave no answer: {why}"),
        })
    })?;
    match answer.status {
        401 | 403 => {
            let why = format!("it refused the key (status {})", answer.status);
            Err(bad(why).remedy(format!("check {}", provider.key_variable)))
        }
        _ => Ok(()),
    }
}
