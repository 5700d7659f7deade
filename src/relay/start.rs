//! The relay role: takes its order, gives up what it does not need, serves. Started by the keeper for a run
//! (`sanduk relay-role`, order on standard input) or by a person (`sanduk relay --listen …`).

use crate::catalog::providers::{self, Provider};
use crate::error::{Error, Exit};
use crate::limits;
use crate::relay::bodies::Bodies;
use crate::relay::budget::Meter;
use crate::relay::caps::{Capped, Caps};
use crate::relay::log::Log;
use crate::relay::note::{Note, Ready, Stop, Warning};
use crate::relay::notes::Notes;
use crate::relay::policy::Rules;
use crate::relay::pool::Pool;
use crate::relay::record::{Record, Start, VERSION};
use crate::relay::secrets::{self, Secrets};
use crate::relay::serving::{Parts, Serving};
use crate::relay::{confinement, conn, preflight, upstream};
use crate::sys::file::Dir;
use crate::sys::net::{self, Conn, Listener};
use crate::sys::{proc, serve};
use crate::wire::text;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a relay is to do. Holds no secret: key and token come on a descriptor of their own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Name of a shipped provider.
    pub provider: String,
    /// Where it is.
    pub upstream: Upstream,
    /// Values a request's `Host` may have, lower case, with port where sent.
    pub hosts: Vec<String>,
    /// Only this uid may connect (Unix listener); none: any.
    pub peer_uid: Option<u32>,
    /// What is allowed.
    pub grants: Grants,
    /// How much of it.
    pub caps: Caps,
    /// Uid and gid to become when started as root; none: stay.
    pub become_uid: Option<(u32, u32)>,
    /// Descriptors handed over by the parent.
    pub fds: Fds,
    /// Ask the provider whether the key is good before serving.
    pub preflight: bool,
}

/// Descriptor numbers the role inherits; everything else is closed first thing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fds {
    /// Listening socket.
    pub listener: i32,
    /// Pipe with the secrets (`relay::secrets`). Read once, then closed.
    pub secrets: i32,
    /// `calls.jsonl`, opened to append and, where something is in it, to read.
    pub log: i32,
    /// Pipe on which `Note`s go to the asker, a JSON line each.
    pub notes: i32,
    /// The directory of bodies, with `--log-bodies`.
    #[serde(default)]
    pub bodies: Option<i32>,
}

impl Fds {
    /// Every one of them.
    pub fn all(&self) -> Vec<i32> {
        [self.listener, self.secrets, self.log, self.notes].into_iter().chain(self.bodies).collect()
    }
}

/// The resolved upstream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// TLS, by `openssl s_client` unless `stunnel` says otherwise; else plain TCP.
    pub tls: bool,
    /// Name for Host, SNI and the certificate check; no port, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Addresses resolved before confinement, tried in order.
    pub addresses: Vec<std::net::SocketAddr>,
    /// `--ca-file`; none: the system's CA directory.
    pub ca_file: Option<String>,
    /// Absolute path of openssl (checked to be 3.x) where it is what speaks TLS.
    pub openssl: String,
    /// `--tls stunnel:unix:PATH`: the socket of a stunnel that speaks TLS for us.
    pub stunnel: Option<Stunnel>,
    /// `--upstream-proxy`; `addresses` are the proxy's then.
    pub proxy: Option<Proxy>,
    /// `--retry-for`: how long an overloaded provider is asked again; zero: not at all.
    pub retry_for: std::time::Duration,
}

/// Where a stunnel listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stunnel {
    /// Absolute path of its socket, without links.
    pub socket: String,
    /// Who may be at its other end, besides root; known once it was checked.
    pub owner: u32,
}

/// An HTTP proxy that opens tunnels (CONNECT). Its password is not here: it comes with the secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// From `--upstream-proxy-auth`.
    pub user: Option<String>,
}

/// The model policy of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    /// `sealed` or `key-safe`.
    pub sealed: bool,
    /// Empty: any model.
    pub allow_models: Vec<String>,
    /// Upper bound for every field of a protocol that sets output length.
    pub max_tokens_cap: Option<u64>,
    /// `--allow-server-tools`: sealed mode lets the provider's own tools pass, those that the tables name.
    pub allow_server_tools: bool,
    /// `--allow-field`: places that sealed mode would refuse, as a refusal names them.
    pub allow_fields: Vec<String>,
}

impl Grants {
    /// What is weaker than sealed mode by itself, a line each for the operator.
    pub fn weaker(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.allow_server_tools {
            lines.push(
                "--allow-server-tools: the provider may search, fetch and run things for the agent".into(),
            );
        }
        for field in &self.allow_fields {
            let field = text::short(field, limits::SHOWN_CHARS);
            lines.push(format!("--allow-field {field}: what stands there is not judged"));
        }
        lines
    }
}

/// The role. First acts in an order that matters: user, death with the parent, nothing inherited but what is named, secrets in,
/// confinement, and only then the first byte of the network and the first thread.
pub fn role() -> Result<Exit, Error> {
    let parent = std::os::unix::process::parent_id();
    let order = read_order()?;
    if let Some((uid, gid)) = order.become_uid
        && proc::ids().0 == 0
    {
        proc::become_user(uid, gid).map_err(|e| Error::fault("become", format!("uid {uid}"), e))?;
    }
    let alive = proc::die_with_parent(parent).map_err(|e| Error::fault("follow", "the keeper", e))?;
    if !alive {
        return Ok(Exit::Ok);
    }
    let Fds { listener, secrets, log, notes, bodies } = order.fds;
    proc::harden(&order.fds.all()).map_err(|e| Error::fault("harden", "the relay", e))?;
    proc::ignore_signals().map_err(|e| Error::fault("ignore", "signals", e))?;
    let fd = |n| net::inherited(n).map_err(|e| Error::fault("take over", format!("descriptor {n}"), e));
    let secrets = secrets::read(fd(secrets)?)?;
    let (listener, log) = (Listener::new(fd(listener)?), fd(log)?);
    let bodies = bodies.map(fd).transpose()?.map(Dir::from);
    let notes = Arc::new(Notes::new(Conn::new(fd(notes)?)));
    match begin(order, secrets, listener, (log, bodies), &notes) {
        Ok(serving) => {
            wait_for_end_of_life();
            let closed = serving.close("the keeper let go");
            closed.map_err(|e| Error::fault("write", "the record of calls", e))?;
            Ok(Exit::Ok)
        }
        // The asker prints it; a second time on our standard error would be once too often.
        Err(stop) => {
            let exit = stop.exit();
            let why = stop.to_string();
            notes.tell(&Note::Refused(Stop { why, exit: exit.code() }));
            Ok(exit)
        }
    }
}

/// From confinement to the first connection.
fn begin(
    order: Order,
    secrets: Secrets,
    listener: Listener,
    kept: (OwnedFd, Option<Dir>),
    notes: &Arc<Notes>,
) -> Result<Arc<Serving>, Error> {
    let (log, bodies) = kept;
    let log = Log::open(File::from(log), &mut |_| {})?;
    let provider = providers::shipped(&order.provider)
        .ok_or_else(|| Error::fault("find", format!("provider {}", order.provider), "it is not shipped"))?;
    let rules = rules_of(&provider)?;
    let features = confinement::confined(&order.upstream, bodies.as_ref())?;
    let Secrets { token, key, named, password } = secrets;
    let pool = Pool::new(order.upstream, password);
    if order.preflight {
        preflight::check(&provider, &pool, &key)?;
    }
    let of = Arc::clone(notes);
    let meter = Meter::new(order.caps, &provider);
    let serving = Arc::new(Serving::new(Parts {
        provider,
        rules,
        hosts: order.hosts,
        peer_uid: order.peer_uid,
        grants: order.grants,
        token,
        key,
        named,
        pool,
        log,
        meter,
        bodies: bodies.map(Bodies::new),
        tell: Box::new(move |note| of.tell(&note)),
        // The asker, told by a note, ends the run; until then every request is refused.
        ended: Box::new(|_| {}),
    }));
    started(&serving)?;
    serving.tell(Note::Ready(Ready { features }));
    in_background(listener, &serving)?;
    Ok(serving)
}

/// The body rules of a provider; that they do not hold together is our own fault.
pub fn rules_of(provider: &Provider) -> Result<Rules, Error> {
    Rules::of(provider).map_err(|why| Error::fault("read", "the shipped field tables", why))
}

/// One line of JSON; the rest of standard input is the keeper's life.
fn read_order() -> Result<Order, Error> {
    let bad = |why: &dyn std::fmt::Display| Error::fault("read", "the relay's order", why);
    let most = u64::try_from(limits::ORDER_BYTES).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    std::io::stdin().lock().take(most).read_until(b'\n', &mut line).map_err(|e| bad(&e))?;
    if line.last() != Some(&b'\n') {
        return Err(bad(&"it has no end"));
    }
    serde_json::from_slice(&line).map_err(|e| bad(&e))
}

/// The first record: what this relay was told to allow.
pub fn started(serving: &Serving) -> Result<(), Error> {
    let place = upstream::shown(serving.pool.upstream());
    let record = Record::Start(Start {
        v: VERSION,
        version: env!("CARGO_PKG_VERSION").into(),
        provider: serving.provider.name.clone(),
        upstream: place,
        resumed: serving.log.found(),
        grants: serving.grants.clone(),
        caps: Capped::of(serving.meter.caps()),
        secrets: Some(serving.guard.names()).filter(|names| !names.is_empty()),
    });
    serving.log.write_synced(&record).map_err(|e| Error::wrong("write", "the record of calls", e))
}

/// Accepts on a thread of its own, a thread per connection; another keeps the connections to the provider.
pub fn in_background(listener: Listener, serving: &Arc<Serving>) -> Result<(), Error> {
    let tended = Arc::clone(serving);
    #[expect(clippy::disallowed_methods, reason = "THREAD-23 closes idle connections, makes the spare")]
    let tending = serve::spawn(
        "pool",
        Box::new(move || {
            let _fault = Fault(&tended, "the thread that keeps connections panicked: calls get slower");
            tended.pool.tend();
        }),
    );
    tending.map_err(|e| Error::fault("start", "a thread", e))?;
    let serving = Arc::clone(serving);
    let accept = move || {
        let _fault =
            Fault(&serving, "the thread that accepts connections panicked: no further one is served");
        let each = Arc::clone(&serving);
        let each: Arc<dyn Fn(Conn) + Send + Sync> = Arc::new(move |c| {
            let _fault = Fault(&each, "the thread of a connection panicked; its call is charged at its most");
            conn::serve(&each, &c);
        });
        #[expect(clippy::disallowed_methods, reason = "THREAD-20 a thread per connection of the box")]
        let ended = serve::serve(&listener, limits::CONNECTIONS, each);
        let why = ended.map_or_else(|e| e.to_string(), |()| "it was closed".into());
        serving.end(&format!("the relay cannot accept connections: {why}"), Exit::Fault);
    };
    #[expect(clippy::disallowed_methods, reason = "THREAD-21 the accept loop")]
    let thread = serve::spawn("accept", Box::new(accept));
    thread.map(|_| ()).map_err(|e| Error::fault("start", "a thread", e))
}

/// Tells when its thread panics, which only ends the thread: nobody would know otherwise.
struct Fault<'a>(&'a Serving, &'static str);

impl Drop for Fault<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tell(Note::Warning(Warning { line: format!("a fault of sanduk: {}", self.1) }));
        }
    }
}

/// Returns when the keeper's end of standard input is closed, by its will or by its death. What comes before is read and dropped.
fn wait_for_end_of_life() {
    let mut sink = [0u8; 64];
    loop {
        match std::io::stdin().lock().read(&mut sink) {
            Ok(0) => return,
            Err(e) if e.kind() != std::io::ErrorKind::Interrupted => return,
            _ => {}
        }
    }
}
