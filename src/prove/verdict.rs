//! What the probes of `attest` come to: each closed, a hole or untested, and why. Silence is believed only where the same probe works
//! from outside. What was not tried is closed only where nothing could come of it. The table for people, the JSON for machines (`audit/ATTEST.md`). Called by `attest`.

use crate::error::Exit;
use crate::prove::outside;
use crate::wire::probe::{Abstract, Found, Target, Way};
use crate::wire::text;
use serde::Serialize;

/// Version of the JSON.
pub const SCHEMA: u32 = 1;

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No way out there.
    Closed,
    /// A way out.
    Hole,
    /// It could not be made, or its silence says nothing here.
    Untested,
}

/// One probe.
#[derive(Debug, Serialize)]
pub struct Probe {
    /// Stable but for addresses, ports and paths behind the first space.
    pub id: String,
    /// What was tried.
    pub what: &'static str,
    /// What a closed box does.
    pub expected: &'static str,
    /// What happened.
    pub got: String,
    /// What it comes to.
    pub verdict: Verdict,
}

/// The whole answer.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// `SCHEMA`.
    pub schema: u32,
    /// This program's.
    pub version: &'static str,
    /// `closed`, `holes`, or `unproven`: no hole was seen, and something that could be one was not tried.
    pub verdict: &'static str,
    /// Engine and its version or endpoint.
    pub engine: String,
    /// The image, on docker.
    pub image: Option<String>,
    /// `--hole`, where one was made on purpose.
    pub made_hole: Option<String>,
    /// The host's kernel.
    pub kernel: String,
    /// What confined the relay, as in a receipt.
    pub features: Vec<String>,
    /// The receipt of the run that was probed.
    pub receipt: String,
    /// How many probes were not made, or say nothing here.
    pub untested: usize,
    /// Ids of those among them that could be a hole all the same.
    pub unproven: Vec<String>,
    /// In the order they were made.
    pub probes: Vec<Probe>,
}

/// By the first word of an id: what was tried, what a closed box does.
const WHAT: [(&str, &str, &str); 48] = [
    ("net-interfaces", "interfaces of the box", "lo alone"),
    ("net-routes", "routes of the box", "none but of lo"),
    ("host-tcp", "a port of this host, by TCP", "unreachable"),
    ("host-udp", "a port of this host, by UDP", "unreachable"),
    ("dns-udp", "a name server, by UDP", "unreachable"),
    ("dns-tcp", "a name server, by TCP", "unreachable"),
    ("metadata", "a cloud's metadata service", "unreachable"),
    ("internet", "an address of the internet", "unreachable"),
    ("other-box-tcp", "another sealed box", "unreachable"),
    ("other-box-abstract", "an abstract socket of another box", "not there"),
    ("host-abstract", "an abstract socket of this host", "not there"),
    ("icmp", "an echo request", "unreachable"),
    ("raw-socket", "packets of the box's own making", "refused"),
    ("packet-socket", "frames of the box's own making", "refused"),
    ("netlink-write", "a change of an interface", "refused"),
    ("socket-families", "vsock and every other family of sockets", "refused"),
    ("host-sockets", "socket files of the host", "none"),
    ("engine-sockets", "sockets of engines by name", "none answers"),
    ("writable-system", "files outside the work directory", "refused"),
    ("devices", "devices of the host", "none"),
    ("make-device", "a device of its own", "refused"),
    ("set-id", "a set-id file in the work directory", "refused"),
    ("key", "the key", "not there"),
    ("key-environ", "the key in environments", "not there"),
    ("key-argv", "the key in command lines", "not there"),
    ("key-memory", "the key in memory", "not there"),
    ("key-mounts", "the key in the mount table", "not there"),
    ("key-files", "the key in files", "not there"),
    ("namespace", "a namespace of the host", "the box has its own"),
    ("privileges", "capabilities, new privileges, no filter", "none"),
    ("sysctl", "settings of the kernel", "refused"),
    ("core-pattern", "the handler of crashes", "refused"),
    ("kernel-memory", "the kernel's memory", "nothing to read"),
    ("cgroup-release-agent", "control groups", "refused"),
    ("first-process", "the box's first process", "closed"),
    ("call", "a system call that leads into the kernel", "refused"),
    ("relay-works", "an allowed call by the relay", "answered"),
    ("relay-path", "a path that is not listed", "refused"),
    ("relay-method", "a method that is not listed", "refused"),
    ("relay-absolute-form", "another host by the absolute form", "refused"),
    ("relay-connect", "a tunnel", "refused"),
    ("relay-wrong-token", "a wrong token", "refused"),
    ("relay-no-token", "no token", "refused"),
    ("relay-web-search", "a search by the provider", "refused"),
    ("relay-mcp-connector", "an MCP server by the provider", "refused"),
    ("relay-url-source", "a fetch by the provider", "refused"),
    ("relay-key-reflected", "the key in the provider's answer", "cut"),
    ("relay-provider", "what arrived at the provider", "the allowed calls, with the key"),
];
/// The host's own looks.
const LOOKS: [(&str, &str, &str); 3] = [
    ("relay-confined", "the relay's privileges", "none"),
    ("box-processes", "uid and filter of the box's processes", "the work directory's owner, filtered"),
    ("nothing-left", "record and channel after the run", "gone"),
];

/// Stands there only where something else is missing.
const SOMETIMES: &str = "key";
/// These need a packet, or a name of the network's namespace: nothing comes of them in a box that is `ALONE`.
const BY_NETWORK: [&str; 10] = [
    "host-tcp",
    "host-udp",
    "dns-udp",
    "dns-tcp",
    "metadata",
    "internet",
    "other-box-tcp",
    "other-box-abstract",
    "host-abstract",
    "icmp",
];
/// A box for which these are closed has a network of its own, and nothing in it.
const ALONE: [&str; 3] = ["net-interfaces", "net-routes", "namespace net"];

/// What silence is checked against.
pub struct Controls<'a> {
    /// Addresses that were tried.
    pub targets: &'a [Target],
    /// Abstract sockets that were tried.
    pub abstracts: &'a [Abstract],
    /// The other box reached these of its own, so they are open.
    pub held: &'a [Target],
    /// The box has a network namespace of its own.
    pub own_network: bool,
}

/// Everything that was found, judged; what should have been tried and was not is untested.
pub fn judge(found: &[Found], controls: &Controls<'_>) -> Vec<Probe> {
    let made = |id: &str| found.iter().any(|f| first(&f.id) == id);
    let rows = WHAT.iter().chain(&LOOKS).map(|(id, ..)| *id);
    let missing = rows.filter(|id| *id != SOMETIMES && !made(id));
    let missing: Vec<Found> = missing.map(|id| Found::new(id, Way::Untested, "it was not made")).collect();
    found.iter().chain(&missing).map(|f| one(f, controls)).collect()
}

/// Ids of what was not tried and could be a hole all the same: all of it, but for what needs a network in a box that has none.
pub fn unproven(probes: &[Probe]) -> Vec<String> {
    let shut = |id: &&str| probes.iter().any(|p| p.id == **id && p.verdict == Verdict::Closed);
    let alone = ALONE.iter().all(shut);
    let harmless = |id: &str| alone && BY_NETWORK.contains(&first(id));
    let left = probes.iter().filter(|p| p.verdict == Verdict::Untested && !harmless(&p.id));
    left.map(|p| p.id.clone()).collect()
}

fn first(id: &str) -> &str {
    id.split(' ').next().unwrap_or_default()
}

fn one(found: &Found, controls: &Controls<'_>) -> Probe {
    let first = first(&found.id);
    let row = WHAT.iter().chain(&LOOKS).find(|(id, ..)| *id == first);
    let (_, what, expected) = row.copied().unwrap_or(("", "", ""));
    let mut got = text::short(&found.got, 300);
    let verdict = match found.way {
        Way::Open => Verdict::Hole,
        Way::Untested => Verdict::Untested,
        Way::Shut if needs_control(first) => control(found, controls, &mut got),
        Way::Shut => Verdict::Closed,
        Way::Silent => control(found, controls, &mut got),
    };
    Probe { id: text::short(&found.id, 200), what, expected, got, verdict }
}

/// The host opened these itself: that they can be reached at all is shown each time, whatever the box's kernel said.
fn needs_control(first: &str) -> bool {
    ["host-tcp", "host-udp", "host-abstract"].contains(&first)
}

/// The same probe from out here.
fn control(found: &Found, controls: &Controls<'_>, got: &mut String) -> Verdict {
    let outside = if let Some(target) = controls.targets.iter().find(|t| t.id == found.id) {
        // Nobody listens there in the box's own loopback: that is what "refused" says where the namespace is its own.
        if target.at.ip().is_loopback() && controls.own_network && !found.id.starts_with("host-") {
            got.push_str(" (the box's own loopback)");
            return Verdict::Closed;
        }
        match controls.held.contains(target) {
            true => Ok(()),
            false => outside::reach(target),
        }
    } else if let Some(socket) = controls.abstracts.iter().find(|a| a.id == found.id) {
        // The other box's is not in this namespace either; it was listened on, which is all that can be known.
        match found.id.starts_with("host-") {
            true => outside::reach_abstract(socket),
            false => Ok(()),
        }
    } else if let Some(ip) = found.id.strip_prefix("icmp ").and_then(|ip| ip.parse().ok()) {
        outside::ping(ip)
    } else {
        Err(std::io::Error::other("there is nothing to compare it with"))
    };
    match outside {
        Ok(()) => {
            got.push_str("; from outside it works");
            Verdict::Closed
        }
        Err(e) => {
            got.push_str(&format!("; from outside: {e}"));
            Verdict::Untested
        }
    }
}

impl Answer {
    /// Adds the probes, and what they come to.
    pub fn of(mut self, probes: Vec<Probe>) -> Answer {
        self.untested = probes.iter().filter(|p| p.verdict == Verdict::Untested).count();
        self.unproven = unproven(&probes);
        self.probes = probes;
        self.verdict = match (self.holes().as_slice(), self.unproven.as_slice()) {
            ([], []) => "closed",
            ([], _) => "unproven",
            _ => "holes",
        };
        self
    }

    /// 0 only where all of it is known to be closed.
    pub fn exit(&self) -> Exit {
        match self.verdict {
            "closed" => Exit::Ok,
            "holes" => Exit::Policy,
            _ => Exit::Failed,
        }
    }

    /// Ids of the holes.
    pub fn holes(&self) -> Vec<&str> {
        let holes = self.probes.iter().filter(|p| p.verdict == Verdict::Hole);
        holes.map(|p| p.id.as_str()).collect()
    }

    /// One object, as `audit/ATTEST.md` has it.
    pub fn json(&self) -> String {
        // Our own types: no map, no number that JSON has not.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }

    /// For a person: a line for each probe, holes last, then what it comes to.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for wanted in [Verdict::Closed, Verdict::Untested, Verdict::Hole] {
            for probe in self.probes.iter().filter(|p| p.verdict == wanted) {
                let word = match wanted {
                    Verdict::Closed => "closed",
                    Verdict::Untested => "untested",
                    Verdict::Hole => "HOLE",
                };
                out.push_str(&format!("{word:<9}{:<34} {} -> {}\n", probe.id, probe.what, probe.got));
            }
        }
        let closed = self.probes.iter().filter(|p| p.verdict == Verdict::Closed).count();
        let place = self.image.as_ref().map_or(String::new(), |image| format!(", {image}"));
        out.push_str(&format!(
            "\n{}{place}; kernel {}; relay: {}\n",
            self.engine,
            self.kernel,
            self.features.join("; ")
        ));
        let holes = self.holes();
        out.push_str(&match (holes.as_slice(), self.unproven.as_slice(), self.untested) {
            ([], [], 0) => format!("closed: {closed} ways tried\n"),
            ([], [], n) => {
                format!("closed: {closed} ways tried; {n} not tested, which need a network, and the box has none\n")
            }
            ([], unproven, _) => format!(
                "not shown to be closed: {} could not be tested ({closed} ways are closed): {}\n",
                unproven.len(),
                unproven.join(", ")
            ),
            (holes, ..) => format!("{} open: {}\n", holes.len(), holes.join(", ")),
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Controls, LOOKS, SOMETIMES, Verdict, WHAT, judge};
    use crate::error::Exit;
    use crate::wire::probe::{Found, Way};

    /// Every probe once and closed, but for those named: with this way, or `None`: not there at all.
    fn answer(but: &[(&str, Option<Way>)]) -> Answer {
        let way = |id: &str| but.iter().find(|(b, _)| *b == id).map_or(Some(Way::Shut), |(_, way)| *way);
        let rows = WHAT.iter().chain(&LOOKS).map(|(id, ..)| *id).filter(|id| *id != SOMETIMES);
        let ids = rows.map(|id| if id == "namespace" { "namespace net" } else { id });
        let found: Vec<Found> = ids.filter_map(|id| Some(Found::new(id, way(id)?, "x"))).collect();
        let controls = Controls { targets: &[], abstracts: &[], held: &[], own_network: true };
        let probes = judge(&found, &controls);
        let none = Answer {
            schema: 1,
            version: "",
            verdict: "",
            engine: String::new(),
            image: None,
            made_hole: None,
            kernel: String::new(),
            features: Vec::new(),
            receipt: String::new(),
            untested: 0,
            unproven: Vec::new(),
            probes: Vec::new(),
        };
        none.of(probes)
    }

    fn of(answer: &Answer) -> (&str, usize, Vec<&str>, Exit) {
        let unproven = answer.unproven.iter().map(String::as_str).collect();
        (answer.verdict, answer.untested, unproven, answer.exit())
    }

    /// The three that are compared with the same from outside have nothing to compare with here; the box is alone, so they are no holes.
    #[test]
    fn what_needs_a_network_may_stay_untested_in_a_box_that_has_none() {
        let quiet = answer(&[("dns-udp", Some(Way::Silent)), ("icmp", Some(Way::Untested))]);
        assert_eq!(of(&quiet), ("closed", 5, vec![], Exit::Ok));
        assert!(quiet.table().contains("closed: ") && quiet.table().contains("; 5 not tested"));
        assert!(quiet.json().contains("\"untested\": 5") && quiet.json().contains("\"unproven\": []"));
    }

    #[test]
    fn what_could_be_a_hole_is_never_closed_untested() {
        for id in
            ["relay-works", "key-memory", "privileges", "relay-confined", "nothing-left", "first-process"]
        {
            for way in [Some(Way::Untested), Some(Way::Silent), None] {
                let left = answer(&[(id, way)]);
                assert_eq!(of(&left), ("unproven", 4, vec![id], Exit::Failed), "{id}");
                assert!(left.table().ends_with(&format!(": {id}\n")), "{}", left.table());
            }
        }
        // Without one of these three nobody knows whether the box has a network.
        for id in ["net-interfaces", "net-routes", "namespace net"] {
            let left = answer(&[(id, Some(Way::Untested))]);
            let mut unproven = left.unproven.clone();
            unproven.sort();
            let mut wanted = ["host-abstract", "host-tcp", "host-udp", id];
            wanted.sort();
            assert_eq!(
                (left.verdict, unproven),
                ("unproven", wanted.iter().map(|w| w.to_string()).collect())
            );
        }
        assert_eq!(answer(&[("namespace net", None)]).verdict, "unproven");
    }

    #[test]
    fn a_hole_is_a_hole_whatever_else_is_unknown() {
        let open = answer(&[("devices", Some(Way::Open)), ("relay-works", Some(Way::Untested))]);
        assert_eq!((open.verdict, open.exit(), open.holes()), ("holes", Exit::Policy, vec!["devices"]));
        assert!(open.probes.iter().any(|p| p.verdict == Verdict::Closed));
        assert!(open.table().ends_with("1 open: devices\n"));
    }
}
