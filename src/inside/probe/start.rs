//! `sanduk probe`: the agent of `sanduk attest`. Tries every way out of the box it is in and writes down what came of it. It never
//! does what a way that is open would allow. Started by `inside`, like any agent.

use crate::error::{Error, Exit};
use crate::inside::probe::{kernel, keys, network, places, relay};
use crate::limits;
use crate::sys::file::Dir;
use crate::sys::{attempt, net};
use crate::wire::probe::{Abstract, FOUND, Found, GREETING, Report, STOP, Target, Task, Way};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Where the work directory is.
const WORK: &str = "/work";
/// The line that the reader rules of `resources/probe.json` wait for.
const DONE: &[u8] = b"{\"type\":\"result\",\"ok\":true,\"text\":\"probed\"}\n";

/// The role. Standard input: base URL and token of the relay, a line each, then a `Task`.
pub fn role() -> Result<Exit, Error> {
    let fault = |e: &dyn std::fmt::Display| Error::fault("probe", "the box", e);
    let mut text = String::new();
    let most = u64::try_from(limits::PROBE_BYTES).unwrap_or(u64::MAX);
    std::io::stdin().lock().take(most).read_to_string(&mut text).map_err(|e| fault(&e))?;
    let mut parts = text.splitn(3, '\n');
    let (url, token, task) = (parts.next(), parts.next(), parts.next());
    let task: Task = serde_json::from_str(task.unwrap_or_default()).map_err(|e| fault(&e))?;
    #[expect(clippy::disallowed_methods, reason = "FILE-61 the work directory, for what the probe found")]
    let work = Dir::open(Path::new(WORK)).map_err(|e| fault(&e))?;
    let keep = |report: &Report| -> Result<(), Error> {
        let bytes = serde_json::to_vec(report).map_err(|e| fault(&e))?;
        work.replace(FOUND, &bytes, 0o644).map_err(|e| fault(&e))
    };
    if task.hold {
        hold(&work, &keep)?;
    } else {
        probe(&task, url.unwrap_or_default(), token.unwrap_or_default(), &keep)?;
    }
    std::io::stdout().lock().write_all(DONE).map_err(|e| fault(&e))?;
    Ok(Exit::Ok)
}

type Keep<'a> = dyn Fn(&Report) -> Result<(), Error> + 'a;

/// The last probe may end the run, so the report is there before it.
fn probe(task: &Task, url: &str, token: &str, keep: &Keep<'_>) -> Result<(), Error> {
    let mut report = Report::default();
    let all = &mut report.found;
    network::probe(task, all);
    places::probe(all);
    match crate::wire::probe::inverted(&task.inverted) {
        Some(key) => keys::probe(&key, all),
        None => all.push(Found::new("key", Way::Untested, "the task names no key to look for")),
    }
    kernel::probe(task, all);
    let relay = relay::Relay::new(url, token);
    relay.probe(all);
    keep(&report)?;
    report.found.push(relay.reflection(&task.inverted));
    report.complete = true;
    keep(&report)
}

/// Opens one socket of each kind on every address this box has, and waits to be told to end.
fn hold(work: &Dir, keep: &Keep<'_>) -> Result<(), Error> {
    let fault = |e: std::io::Error| Error::fault("listen", "in the box", e);
    let mut report = Report::default();
    let everywhere: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let mut held = Vec::new();
    for ip in everywhere {
        #[expect(clippy::disallowed_methods, reason = "NET-63 a socket in the other box")]
        let Ok(listener) = net::listen_tcp(SocketAddr::new(ip, 0)) else { continue };
        let port = listener.address().map_or(0, |a| a.port());
        let greet = move || {
            while let Ok(conn) = listener.accept() {
                let _ = conn.write_all(&[GREETING], limits::PROBE_WAIT);
            }
        };
        #[expect(clippy::disallowed_methods, reason = "THREAD-68 the other box's listeners")]
        let thread = crate::sys::serve::spawn("greet", Box::new(greet));
        held.push(thread.map_err(fault)?);
        for own in network::own_addresses().into_iter().filter(|a| a.is_ipv4() == ip.is_ipv4()) {
            let at = SocketAddr::new(own, port);
            #[expect(
                clippy::disallowed_methods,
                reason = "NET-74 attest: the other box reaches its own sockets"
            )]
            let reached = net::connect_tcp(at, limits::PROBE_WAIT).is_ok();
            if reached {
                report.targets.push(Target { id: format!("other-box-tcp {at}"), at, udp: false });
            }
        }
    }
    let name = format!("sanduk-attest-{}", crate::sys::proc::random_hex(8).map_err(fault)?);
    #[expect(clippy::disallowed_methods, reason = "NET-64 an abstract socket in the other box")]
    let _socket = attempt::listen_abstract(&name).map_err(fault)?;
    report.abstracts.push(Abstract { id: "other-box-abstract".into(), name });
    report.complete = true;
    keep(&report)?;
    let until = Instant::now() + limits::PROBE_HOLD;
    while work.facts(STOP).is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
