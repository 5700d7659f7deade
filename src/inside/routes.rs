//! What each route of the control server does and who may ask for it. In-box peers get `/tool/*` only; the host's routes
//! want the control secret of the first `/start` as well. Called by `control`, which owns the bytes of a connection.

use crate::inside::events::{BadCursor, State, Store};
use crate::inside::forward;
use crate::inside::supervise::Order;
use crate::inside::switch::Switch;
use crate::limits;
use crate::secret::Secret;
use crate::wire::control::{Health, Refused, Start, Status, VERSION};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Who asks, by `SO_PEERCRED` at accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Outside our pid namespace.
    Host,
    /// A process in the box: the agent, as far as we know.
    Box,
}

/// A route that may be answered; `Routes::admit` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `GET /health`.
    Health,
    /// `POST /start`.
    Start,
    /// `GET /status`.
    Status,
    /// `DELETE /shutdown`.
    Shutdown,
    /// `POST /message`, `/pause`, `/resume`.
    NotBuilt,
}

impl Route {
    /// Most bytes of the request's body.
    pub fn body_limit(self) -> u64 {
        if self == Route::Start { limits::START_BYTES } else { 0 }
    }
}

const ROUTES: [(&str, &str, Route); 7] = [
    ("/health", "GET", Route::Health),
    ("/start", "POST", Route::Start),
    ("/status", "GET", Route::Status),
    ("/shutdown", "DELETE", Route::Shutdown),
    ("/message", "POST", Route::NotBuilt),
    ("/pause", "POST", Route::NotBuilt),
    ("/resume", "POST", Route::NotBuilt),
];

/// Shortest control secret: 128 bits as hex are 32 characters.
const SECRET_BYTES: usize = 16;

/// What is sent back.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
    /// The `Allow` field of a 405.
    pub allow: Option<&'static str>,
    /// The box ends once this is written.
    pub ends: bool,
}

impl Answer {
    /// An error with one clause for a person.
    pub fn refuse(status: u16, why: impl Into<String>) -> Answer {
        Answer { status, ..Answer::json(&Refused { error: why.into() }) }
    }

    fn json(value: &impl Serialize) -> Answer {
        // Our own types hold only strings and numbers, which always have a JSON form.
        let body = serde_json::to_vec(value).unwrap_or_default();
        Answer { status: 200, body, allow: None, ends: false }
    }
}

/// What the routes act on.
pub struct Routes {
    store: Arc<Store>,
    switch: Arc<Switch>,
    orders: Sender<Order>,
    /// Directory of `relay.sock`.
    relay: PathBuf,
    /// Set by the first `/start`.
    secret: Mutex<Option<Secret>>,
}

impl Routes {
    /// `relay`: the directory that holds `relay.sock`.
    pub fn new(store: Arc<Store>, switch: Arc<Switch>, orders: Sender<Order>, relay: PathBuf) -> Routes {
        Routes { store, switch, orders, relay, secret: Mutex::new(None) }
    }

    /// Judges who asks for what, before any byte of a body is read. A call that carried the control secret feeds the switch.
    pub fn admit(&self, asker: Asker, method: &str, path: &str, secret: &[u8]) -> Result<Route, Answer> {
        if path.starts_with("/tool/") {
            return Err(Answer::refuse(404, "no such tool"));
        }
        if asker == Asker::Box {
            return Err(Answer::refuse(403, "only /tool/ is open from inside the box"));
        }
        let Some((_, allow, route)) = ROUTES.into_iter().find(|r| r.0 == path) else {
            return Err(Answer::refuse(404, "no such route"));
        };
        if allow != method {
            let why = format!("{path} takes {allow}");
            return Err(Answer { allow: Some(allow), ..Answer::refuse(405, why) });
        }
        self.check_secret(route, secret)?;
        if route == Route::NotBuilt {
            return Err(Answer::refuse(501, format!("{path} is not built yet")));
        }
        Ok(route)
    }

    /// `/health` is open to any host peer, but only the secret makes it a sign of life: a stranger who polls it must not keep
    /// a box alive whose owner is dead.
    fn check_secret(&self, route: Route, given: &[u8]) -> Result<(), Answer> {
        let known = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.as_ref().map(|secret| secret.same(given));
        if same == Some(true) {
            self.switch.feed();
        }
        match (route, same) {
            (Route::Health, _) | (Route::Start, None) | (_, Some(true)) => Ok(()),
            (Route::Start, Some(false)) => Err(Answer::refuse(409, "this box was started before")),
            (_, None) => Err(Answer::refuse(409, "POST /start comes first")),
            (_, Some(false)) => Err(Answer::refuse(403, "the control secret is missing or wrong")),
        }
    }

    /// Does what an admitted route does. `gone` says whether the asker stopped listening.
    pub fn answer(
        &self,
        route: Route,
        query: Option<&str>,
        body: &Secret,
        gone: &dyn Fn() -> bool,
    ) -> Answer {
        match route {
            Route::Health => self.health(self.store.state()),
            Route::Start => self.start(body).unwrap_or_else(|refusal| refusal),
            Route::Status => self.status(query, gone),
            Route::Shutdown => Answer { ends: true, ..self.health(State::Ending) },
            Route::NotBuilt => Answer::refuse(501, "not built yet"),
        }
    }

    /// The answer to `/shutdown` is on its way: end the box.
    pub fn end(&self) {
        // The receiver is gone only when the box is ending already.
        let _ = self.orders.send(Order::End);
    }

    fn health(&self, state: State) -> Answer {
        Answer::json(&Health { version: VERSION, state: state.word().to_owned() })
    }

    /// The lock is held to the end: of two starts at once, one is the first.
    fn start(&self, body: &Secret) -> Result<Answer, Answer> {
        let mut known = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return Err(Answer::refuse(409, "this box was started before"));
        }
        let start = parse_start(body)?;
        let grace = Duration::from_secs(start.grace_seconds);
        if start.forward_port != 0 {
            forward::start(start.forward_port, self.relay.clone(), grace).map_err(|e| {
                Answer::refuse(500, format!("cannot listen on port {}: {e}", start.forward_port))
            })?;
        }
        *known = Some(Secret::new(start.control_secret.into_bytes()));
        self.store.limit(start.event_bytes);
        self.switch.arm(grace);
        self.store.enter(State::Running);
        // The receiver is gone only when the box is ending already.
        let _ = self.orders.send(Order::Turn(Box::new(start.turn)));
        Ok(self.health(State::Running))
    }

    fn status(&self, query: Option<&str>, gone: &dyn Fn() -> bool) -> Answer {
        let Some((since, wait)) = parse_query(query.unwrap_or("")) else {
            return Answer::refuse(400, "the query is since=N, or since=N&wait=SECONDS");
        };
        // An open long poll is a host that lives.
        let left = || {
            self.switch.feed();
            gone()
        };
        let found = self.store.after(since, wait, &left);
        self.switch.feed();
        match found {
            Ok((state, events)) => {
                Answer::json(&Status { version: VERSION, state: state.word().to_owned(), events })
            }
            Err(BadCursor::Beyond(given)) => Answer::refuse(
                400,
                format!("since={since} is beyond event {given}, the last that was handed out"),
            ),
            Err(BadCursor::Gone(acknowledged)) => {
                let why = format!(
                    "events up to {acknowledged} were acknowledged and are gone, since={since} is before"
                );
                Answer::refuse(400, why)
            }
        }
    }
}

/// The version first and leniently, so that a newer host is told so and not that a field is unknown. What the JSON reader says
/// is cut to its place: its words can quote a secret.
fn parse_start(body: &Secret) -> Result<Start, Answer> {
    #[derive(Deserialize)]
    struct Only {
        version: u32,
    }
    #[expect(clippy::disallowed_methods, reason = "KEY-60 the body of /start is parsed")]
    let bytes = body.expose();
    let bad = |e: serde_json::Error| {
        let why = format!("the body is not a start: line {} column {}", e.line(), e.column());
        Answer::refuse(400, why)
    };
    let Only { version } = serde_json::from_slice(bytes).map_err(bad)?;
    if version != VERSION {
        let why =
            format!("the host speaks control version {version}, this box {VERSION}: use one binary for both");
        return Err(Answer::refuse(409, why));
    }
    let start: Start = serde_json::from_slice(bytes).map_err(bad)?;
    if start.control_secret.len() < SECRET_BYTES {
        return Err(Answer::refuse(400, format!("control_secret has under {SECRET_BYTES} bytes")));
    }
    if start.grace_seconds == 0 {
        return Err(Answer::refuse(400, "grace_seconds is 0"));
    }
    Ok(start)
}

/// `since=N` and at most one `wait=S`, digits only, nothing else.
fn parse_query(query: &str) -> Option<(u64, Duration)> {
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (mut since, mut wait) = (None, None);
    for part in query.split('&') {
        let (name, value) = part.split_once('=')?;
        let slot = match name {
            "since" => &mut since,
            "wait" => &mut wait,
            _ => return None,
        };
        if slot.replace(number(value)?).is_some() {
            return None;
        }
    }
    Some((since?, Duration::from_secs(wait.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::parse_query;
    use std::time::Duration;

    #[test]
    fn the_query_has_one_reading() {
        assert_eq!(parse_query("since=7"), Some((7, Duration::ZERO)));
        assert_eq!(parse_query("since=7&wait=20"), Some((7, Duration::from_secs(20))));
        assert_eq!(parse_query("wait=20&since=7"), Some((7, Duration::from_secs(20))));
        for bad in [
            "",
            "since",
            "since=",
            "since=+7",
            "since=-1",
            "since=7&since=8",
            "since=7&",
            "since=7&x=1",
            "wait=1",
            "since=99999999999999999999",
            "since=%37",
            "since= 7",
        ] {
            assert_eq!(parse_query(bad), None, "{bad}");
        }
    }
}
