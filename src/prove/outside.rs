//! The host's side of `attest`: listeners on every address of this host, what else a box must not reach, and the same probes made from
//! outside, without which silence proves nothing. Called by `attest`.

use crate::limits;
use crate::sys::{attempt, file, net, proc, serve};
use crate::wire::probe::{Abstract, GREETING, Target, local_addresses};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Beyond this host, whether or not anybody is there: name servers, metadata services of clouds, the internet.
const BEYOND: [(&str, &str, bool); 12] = [
    ("dns-udp", "8.8.8.8:53", true),
    ("dns-tcp", "8.8.8.8:53", false),
    ("dns-udp", "[2001:4860:4860::8888]:53", true),
    ("dns-udp", "127.0.0.11:53", true),
    ("dns-tcp", "127.0.0.11:53", false),
    ("dns-udp", "127.0.0.53:53", true),
    ("metadata", "169.254.169.254:80", false),
    ("metadata", "169.254.170.2:80", false),
    ("metadata", "100.100.100.200:80", false),
    ("metadata", "[fd00:ec2::254]:80", false),
    ("internet", "1.1.1.1:443", false),
    ("internet", "[2606:4700:4700::1111]:443", false),
];

/// See the file's head.
pub struct Outside {
    /// What a box must not reach.
    pub targets: Vec<Target>,
    /// The host's abstract socket.
    pub abstracts: Vec<Abstract>,
    /// Namespaces that a box must not share.
    pub namespaces: Vec<String>,
    /// What cannot be tried, by id, with why.
    pub missing: Vec<(String, String)>,
    _socket: OwnedFd,
}

impl Outside {
    /// Opens everything.
    pub fn open() -> io::Result<Outside> {
        let name = format!("sanduk-attest-{}", proc::random_hex(8)?);
        #[expect(clippy::disallowed_methods, reason = "NET-180 attest: an abstract socket of the host")]
        let socket = attempt::listen_abstract(&name)?;
        let mut outside = Outside {
            targets: Vec::new(),
            abstracts: vec![Abstract { id: "host-abstract".into(), name }],
            namespaces: Vec::new(),
            missing: Vec::new(),
            _socket: socket,
        };
        outside.namespaces();
        for ip in addresses() {
            outside.listen(ip);
        }
        for (id, at, udp) in BEYOND {
            if let Ok(at) = at.parse() {
                outside.targets.push(Target { id: format!("{id} {at}"), at, udp });
            }
        }
        for server in resolvers() {
            for (id, udp) in [("dns-udp", true), ("dns-tcp", false)] {
                let at = SocketAddr::new(server, 53);
                outside.targets.push(Target { id: format!("{id} {at}"), at, udp });
            }
        }
        outside.targets.dedup();
        Ok(outside)
    }

    /// As `/proc/self/ns` names them. A user namespace is not among them: docker boxes share the host's.
    fn namespaces(&mut self) {
        for kind in ["net", "pid", "ipc", "uts", "mnt"] {
            #[expect(clippy::disallowed_methods, reason = "FILE-181 attest: the host's namespaces")]
            match attempt::link(&Path::new("/proc/self/ns").join(kind)) {
                Ok(name) => self.namespaces.push(name),
                Err(e) => self.missing.push((format!("namespace {kind}"), format!("not known: {e}"))),
            }
        }
    }

    /// A TCP and a UDP socket of ours on one address.
    fn listen(&mut self, ip: IpAddr) {
        for udp in [false, true] {
            let id = if udp { "host-udp" } else { "host-tcp" };
            let listened = if udp { datagrams(ip) } else { connections(ip) };
            match listened {
                Ok(at) => self.targets.push(Target { id: format!("{id} {at}"), at, udp }),
                Err(e) => self.missing.push((format!("{id} {ip}"), format!("no listener: {e}"))),
            }
        }
    }
}

/// Greets whoever connects, as long as this process lives.
fn connections(ip: IpAddr) -> io::Result<SocketAddr> {
    #[expect(clippy::disallowed_methods, reason = "NET-181 attest: every address of this host, by TCP")]
    let listener = net::listen_tcp(SocketAddr::new(ip, 0))?;
    let at = listener.address().ok_or_else(|| io::Error::other("it has no address"))?;
    let greet = move || {
        while let Ok(conn) = listener.accept() {
            let _ = conn.write_all(&[GREETING], limits::PROBE_WAIT);
        }
    };
    #[expect(clippy::disallowed_methods, reason = "THREAD-180 attest: greets who connects to the host")]
    serve::spawn("greet", Box::new(greet))?;
    Ok(at)
}

fn datagrams(ip: IpAddr) -> io::Result<SocketAddr> {
    #[expect(clippy::disallowed_methods, reason = "NET-182 attest: every address of this host, by UDP")]
    let (fd, at) = attempt::datagrams(SocketAddr::new(ip, 0))?;
    #[expect(clippy::disallowed_methods, reason = "THREAD-181 attest: answers datagrams to the host")]
    serve::spawn("answer", Box::new(move || attempt::answer(&fd, GREETING)))?;
    Ok(at)
}

/// The same probe from out here; `Err`: it does not work here either.
pub fn reach(target: &Target) -> io::Result<()> {
    if target.udp {
        let question: &[u8] =
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";
        #[expect(clippy::disallowed_methods, reason = "NET-183 attest: the same datagram from outside")]
        return attempt::datagram(target.at, question, limits::PROBE_WAIT).map(drop);
    }
    #[expect(clippy::disallowed_methods, reason = "NET-184 attest: the same connection from outside")]
    net::connect_tcp(target.at, limits::PROBE_WAIT).map(drop)
}

/// The same for an ICMP probe.
pub fn ping(ip: IpAddr) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "NET-185 attest: the same echo request from outside")]
    attempt::ping((ip, 0).into(), limits::PROBE_WAIT)
}

/// The same for an abstract socket.
pub fn reach_abstract(socket: &Abstract) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "NET-186 attest: the host's abstract socket from outside")]
    attempt::connect_abstract(&socket.name)
}

fn text(path: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "FILE-180 attest: addresses and name servers of this host")]
    let bytes = file::read_named(Path::new(path), limits::PROBE_FILE).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Every address of every interface but link-local ones.
fn addresses() -> Vec<IpAddr> {
    local_addresses(&text("/proc/net/fib_trie"), &text("/proc/net/if_inet6"))
}

/// The name servers that this host uses (resolv.conf(5)).
fn resolvers() -> Vec<IpAddr> {
    let text = text("/etc/resolv.conf");
    let servers = text.lines().filter_map(|l| l.trim().strip_prefix("nameserver"));
    let mut all: Vec<IpAddr> = servers.filter_map(|s| s.trim().parse().ok()).collect();
    all.dedup();
    all
}
