//! Ways out by the network: interfaces, routes, addresses by TCP and UDP, ICMP, raw frames, the families of sockets, abstract names.

use crate::limits;
use crate::sys::net;
use crate::sys::{attempt, file};
use crate::wire::probe::{Found, GREETING, Target, Task, Way, local_addresses};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Socket families that a box has: unix, inet, inet6, netlink.
const FAMILIES: [u16; 4] = [1, 2, 10, 16];
/// One more than the last family of `linux/socket.h`, with room for what comes.
const FAMILY_END: u16 = 64;

/// All of it.
pub fn probe(task: &Task, all: &mut Vec<Found>) {
    all.push(interfaces());
    all.push(routes());
    for target in &task.targets {
        all.push(if target.udp { udp(target) } else { tcp(target) });
    }
    all.extend(pings(task));
    all.push(refusal("raw-socket", attempt::raw_socket()));
    all.push(refusal("packet-socket", attempt::packet_socket()));
    #[expect(clippy::disallowed_methods, reason = "NET-65 attest: changes of an interface are refused")]
    let changed = attempt::change_interface();
    all.push(refusal("netlink-write", changed));
    all.push(families());
    for socket in &task.abstracts {
        #[expect(clippy::disallowed_methods, reason = "NET-66 attest: abstract sockets outside the box")]
        let got = attempt::connect_abstract(&socket.name);
        all.push(match got {
            Ok(()) => Found::new(&socket.id, Way::Open, "connected"),
            // Nobody of that name in this network namespace.
            Err(e) if e.raw_os_error() == Some(CONNREFUSED) => {
                Found::new(&socket.id, Way::Silent, e.to_string())
            }
            Err(e) => Found::new(&socket.id, Way::Shut, e.to_string()),
        });
    }
}

/// errno(3), the same on every architecture that we build for.
const CONNREFUSED: i32 = 111;
const NETUNREACH: i32 = 101;
const ADDRNOTAVAIL: i32 = 99;

/// An attempt that the kernel must refuse.
pub fn refusal(id: &str, got: io::Result<()>) -> Found {
    match got {
        Ok(()) => Found::new(id, Way::Open, "it was done"),
        Err(e) => Found::new(id, Way::Shut, e.to_string()),
    }
}

fn proc_file(path: &str) -> io::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "FILE-62 attest: /proc/net of the box")]
    let bytes = file::read_named(Path::new(path), limits::PROBE_FILE)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn interfaces() -> Found {
    let id = "net-interfaces";
    match proc_file("/proc/net/dev") {
        Err(e) => Found::new(id, Way::Untested, e.to_string()),
        Ok(text) => {
            let names: Vec<&str> = text
                .lines()
                .filter_map(|l| Some(l.split_once(':')?.0.trim()))
                .filter(|n| *n != "lo")
                .collect();
            match names.is_empty() {
                true => Found::new(id, Way::Shut, "lo and no other"),
                false => Found::new(id, Way::Open, names.join(" ")),
            }
        }
    }
}

fn routes() -> Found {
    let id = "net-routes";
    let (four, six) = (proc_file("/proc/net/route"), proc_file("/proc/net/ipv6_route"));
    let mut out: Vec<String> = Vec::new();
    match four {
        Err(e) => return Found::new(id, Way::Untested, e.to_string()),
        Ok(text) => {
            let by = |line: &str| line.split_whitespace().next().unwrap_or_default().to_string();
            out.extend(text.lines().skip(1).map(by).filter(|name| name != "lo"));
        }
    }
    // A kernel without IPv6 has no such file.
    for line in six.unwrap_or_default().lines() {
        let name = line.split_whitespace().next_back().unwrap_or_default();
        if name != "lo" {
            out.push(format!("{name} (IPv6)"));
        }
    }
    out.sort();
    out.dedup();
    match out.is_empty() {
        true => Found::new(id, Way::Shut, "none but of lo"),
        false => Found::new(id, Way::Open, format!("routes by {}", out.join(" "))),
    }
}

/// How an address that was not reached counts. No route: no packet could leave, whatever is at the other end. Anything else is
/// believed only where the same probe works from outside.
fn unreached(id: &str, e: &io::Error) -> Found {
    match e.raw_os_error() {
        Some(NETUNREACH | ADDRNOTAVAIL) => Found::new(id, Way::Shut, e.to_string()),
        _ => Found::new(id, Way::Silent, e.to_string()),
    }
}

fn tcp(target: &Target) -> Found {
    #[expect(clippy::disallowed_methods, reason = "NET-67 attest: addresses outside the box, by TCP")]
    let got = net::connect_tcp(target.at, limits::PROBE_WAIT);
    match got {
        Ok(conn) => {
            let mut buf = [0u8; GREETING.len()];
            let greeted =
                conn.read(&mut buf, limits::PROBE_WAIT).is_ok_and(|n| buf.get(..n) == Some(GREETING));
            let words = if greeted { "connected, and greeted by attest's own listener" } else { "connected" };
            Found::new(&target.id, Way::Open, words)
        }
        Err(e) => unreached(&target.id, &e),
    }
}

/// A name server's question where it is port 53: `example.com`, type A; a listener of attest's answers anything.
fn udp(target: &Target) -> Found {
    let question: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";
    #[expect(
        clippy::disallowed_methods,
        reason = "NET-68 attest: addresses outside the box, by UDP and ICMP"
    )]
    let got = attempt::datagram(target.at, question, limits::PROBE_WAIT);
    match got {
        Ok(bytes) => Found::new(&target.id, Way::Open, format!("{} bytes came back", bytes.len())),
        Err(e) => unreached(&target.id, &e),
    }
}

/// One for each address that is tried by TCP or UDP.
fn pings(task: &Task) -> Vec<Found> {
    let mut ips: Vec<IpAddr> =
        task.targets.iter().map(|t| t.at.ip()).filter(|ip| !ip.is_loopback()).collect();
    ips.sort();
    ips.dedup();
    let mut all = Vec::new();
    for ip in ips {
        let id = format!("icmp {ip}");
        #[expect(clippy::disallowed_methods, reason = "NET-69 attest: addresses outside the box, by ICMP")]
        let got = attempt::ping((ip, 0).into(), limits::PROBE_WAIT);
        all.push(match got {
            Ok(()) => Found::new(id, Way::Open, "it answered"),
            // No such socket for this group: the raw one is the other way, and is tried apart.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Found::new(id, Way::Shut, e.to_string()),
            Err(e) => unreached(&id, &e),
        });
    }
    all
}

fn families() -> Found {
    let open: Vec<String> = (0..FAMILY_END)
        .filter(|f| !FAMILIES.contains(f) && attempt::family(*f))
        .map(|f| if f == 40 { "40 (vsock)".to_string() } else { f.to_string() })
        .collect();
    match open.is_empty() {
        true => {
            Found::new("socket-families", Way::Shut, "unix, inet, inet6, netlink and no other (no vsock)")
        }
        false => Found::new("socket-families", Way::Open, format!("families {}", open.join(", "))),
    }
}

/// The addresses of this box but for its loopback's, as its kernel lists them; with them, so that a box without any is tried too.
pub fn own_addresses() -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    all.extend(local_addresses(
        &proc_file("/proc/net/fib_trie").unwrap_or_default(),
        &proc_file("/proc/net/if_inet6").unwrap_or_default(),
    ));
    all.sort();
    all.dedup();
    all
}
