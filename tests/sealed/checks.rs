//! What an agent with a shell can do from inside a sealed box, whatever the engine: nothing but call the relay. Everything is tried
//! by commands that mini runs as the model's tool calls; what they found comes back in the work directory. Promises 1 and 2 of the
//! design. `tests/sealed.rs` asks it of bwrap, `tests/docker.rs` of docker.

use crate::rig::{KEY, On, Ran, Rig, list, root, script};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// The key as a pattern that is no hit itself.
const PATTERN: &str = "RIGKE[Y]-0123";

/// Runs commands in a box, one tool call each; what each printed goes to `out.N`.
fn boxed(on: On, commands: &[&str]) -> (Rig, Ran, Vec<String>) {
    boxed_with(on, &[], commands)
}

fn boxed_with(on: On, more: &[&str], commands: &[&str]) -> (Rig, Ran, Vec<String>) {
    let calls: Vec<String> =
        commands.iter().enumerate().map(|(n, c)| format!("{{ {c}\n}} > /work/out.{n} 2>&1; true")).collect();
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let rig = Rig::on(on, &script(&calls, "done"));
    let ran = rig.run(&[&["x"][..], more].concat()).code(0);
    let out = (0..commands.len())
        .map(|n| {
            String::from_utf8_lossy(&std::fs::read(rig.work.join(format!("out.{n}"))).unwrap()).into_owned()
        })
        .collect();
    (rig, ran, out)
}

/// A perl program, for system calls that a shell has not; perl-base is on every Debian.
fn perl(body: &str) -> String {
    format!("perl -e '{body}'")
}

/// T: the key is in no environment, command line, file or readable memory of the box; the relay's socket is all there is of it.
pub fn box_b09_b10_no_byte_of_the_key_is_in_the_box(on: On) {
    let memory = format!(
        r#"for my $p (glob("/proc/[0-9]*")) {{ next if $p eq "/proc/$$"; open(my $m, "<", "$p/maps") or next; open(my $f, "<", "$p/mem") or next;
            while (<$m>) {{ /^([0-9a-f]+)-([0-9a-f]+) r/ or next; my ($a, $b) = (hex($1), hex($2)); next if $b - $a > 1<<28;
            sysseek($f, $a, 0) or next; sysread($f, my $buf, $b - $a) or next; print "HIT $p\n" if $buf =~ /{PATTERN}/ }} print "read $p\n" }}"#
    );
    let (rig, _, out) = boxed(
        on,
        &[
            &format!("cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -c '{PATTERN}'"),
            &format!("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '{PATTERN}'"),
            &format!(
                "grep -rlE '{PATTERN}' / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr 2>/dev/null; echo looked"
            ),
            &perl(&memory),
            "cat /proc/1/environ; cat /proc/1/maps; ls /proc/1/fd",
        ],
    );
    assert_eq!((out[0].lines().last(), out[1].trim()), (Some("0"), "0"));
    assert_eq!(out[2].trim(), "looked");
    assert!(out[3].contains("read /proc/") && !out[3].contains("HIT"), "{}", out[3]);
    assert!(!out[3].contains("read /proc/1\n"), "PID 1 is readable");
    assert_eq!(out[4].matches("Permission denied").count(), 3, "{}", out[4]);
    // It did reach the provider, by the relay; the receipt and the log do not have it.
    assert!(!std::fs::read_to_string(rig.kept().join("calls.jsonl")).unwrap().contains(KEY));
    assert!(!std::fs::read_to_string(rig.kept().join("receipt.json")).unwrap().contains(KEY));
}

/// Only loopback; no name, no address of the host, no other socket family; each fails at once, none by a timeout.
pub fn box_b05_the_network_is_loopback_and_nothing_else(on: On) {
    let hosts =
        std::process::Command::new("hostname").arg("-I").output().map(|o| o.stdout).unwrap_or_default();
    let hosts = String::from_utf8_lossy(&hosts).into_owned();
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let targets: Vec<&str> = hosts
        .split_whitespace()
        .filter(|a| !a.contains(':'))
        .chain(["127.0.0.1", "169.254.169.254", "1.1.1.1"])
        .collect();
    let connects: String = targets
        .iter()
        .map(|a| format!("timeout 3 bash -c '</dev/tcp/{a}/{port}' 2>/dev/null; echo {a} $?; "))
        .collect();
    let families = (0..46)
        .map(|f| format!("print \"{f}\\n\" if socket(my $s, {f}, 1, 0) || socket($s, {f}, 2, 0) || socket($s, {f}, 3, 0);"))
        .collect::<String>();
    let (_, _, out) = boxed(
        on,
        &[
            "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route; cat /proc/net/if_inet6",
            &connects,
            "timeout 3 getent hosts example.com; echo $?; ls /run /etc/resolv.conf /var/run/docker.sock; [ -s /etc/resolv.conf ] || echo nameless",
            &perl(&families),
        ],
    );
    let lines: Vec<&str> = out[0].lines().collect();
    assert_eq!(lines[0], "lo");
    assert!(lines.iter().all(|l| l.trim_end().ends_with("lo")), "{}", out[0]);
    for (target, line) in targets.iter().zip(out[1].lines()) {
        assert_eq!(line, format!("{target} 1"), "refused at once, not after a timeout (124)");
    }
    assert_eq!(out[2].lines().next(), Some("2"), "a name was found, or waited for: {}", out[2]);
    // Docker mounts a resolv.conf of its own unless one is given: it is ours, and empty.
    let missing = if on == On::Docker { 1 } else { 2 };
    assert!(out[2].contains("sanduk\n") && out[2].matches("No such file").count() == missing, "{}", out[2]);
    assert!(out[2].contains("nameless"), "a resolver is named: {}", out[2]);
    let families: Vec<&str> = out[3].lines().collect();
    assert!(families.iter().all(|f| ["1", "2", "10", "16"].contains(f)), "families: {families:?}");
    assert!(families.contains(&"1") && families.contains(&"2"));
}

/// BOX B2, B4, B7, B34 to B36: what a shell may try against the host through the kernel.
pub fn box_b02_b04_b07_the_kernel_gives_no_way_out(on: On) {
    let chmod = perl(
        r#"open(F, ">", "/work/suid"); close F; print chmod(04755, "/work/suid") ? "SET\n" : "no chmod\n"; print -u "/work/suid" ? "SET\n" : "plain\n";
           print syscall(133, "/work/node", 0104755, 0) == 0 ? "MKNOD\n" : "no mknod\n"; mkdir "/work/sgid", 02777; print -g "/work/sgid" ? "SET\n" : "plain\n""#,
    );
    let calls = perl(
        r#"for my $c (["bpf", 321, 0, 0, 0], ["keyctl", 250, 0, -3, 0], ["io_uring_setup", 425, 1, 0, 0], ["userfaultfd", 323, 0, 0, 0],
           ["perf_event_open", 298, 0, 0, -1], ["unshare", 272, 0x10000000, 0, 0], ["mount", 165, 0, 0, 0]) {
           my ($n, @a) = @$c; my $r = syscall($a[0], $a[1], $a[2], $a[3], 0, 0); print "$n ", ($r == -1 ? "refused " . ($!+0) : "DONE"), "\n" }"#,
    );
    let (rig, _, out) = boxed(
        on,
        &[
            "for f in /proc/sys/vm/overcommit_memory /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/kernel/hostname; do echo 0 > $f && echo WROTE $f; done; true",
            "kill -STOP 1; kill -KILL 1; kill -TERM 1000000; sleep 0.2; grep State /proc/1/status; grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status",
            &chmod,
            &calls,
            "touch /usr/x /x /etc/x /dev/x /run/x /run/sanduk/host/x; mkdir /y; ls / /etc /home /root /var 2>&1; mknod /work/n c 1 3; mount -t tmpfs x /tmp; unshare -U true; echo ran",
            "bash -c 'ulimit -Hn; ulimit -Hu; ulimit -Hf; ulimit -Hc'; df -B1M --output=size /tmp /home/agent /dev/shm | tail -3; cat /proc/self/uid_map",
            "cp /bin/true /tmp/t && /tmp/t && echo executable; whoami; hostname; ls -la /proc/self/fd | grep -v ' [012] ->' | grep -c -- '->'",
        ],
    );
    assert!(!out[0].contains("WROTE"), "{}", out[0]);
    assert!(out[1].contains("State:\tS") || out[1].contains("State:\tR"), "PID 1 was stopped: {}", out[1]);
    for part in [
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(out[1].contains(part), "no {part}: {}", out[1]);
    }
    assert!(!out[2].contains("SET") && !out[2].contains("MKNOD"), "{}", out[2]);
    assert_eq!(out[3].matches("refused").count(), 7, "{}", out[3]);
    for place in ["/usr/x", "/x", "/etc/x", "/dev/x", "/run/x", "/run/sanduk/host/x"] {
        // Docker's /dev is root's and writable to it.
        let refused = ["Read-only file system", "Permission denied"];
        let refused = &refused[..if on == On::Docker { 2 } else { 1 }];
        let says = |why: &&str| out[4].contains(&format!("'{place}': {why}"));
        assert!(refused.iter().any(says), "{place}: {}", out[4]);
    }
    assert!(out[4].contains("ran") && !out[4].contains("mounted"), "{}", out[4]);
    let hidden = if on == On::Docker { "'/root': Permission denied" } else { "No such file or directory" };
    assert!(out[4].contains(hidden), "{}", out[4]);
    assert!(!rig.work.join("n").exists());
    let numbers: Vec<&str> = out[5].lines().map(str::trim).collect();
    assert_eq!((numbers[0], numbers[2], numbers[3]), ("4096", "4194304", "0"), "{numbers:?}");
    assert_eq!(&numbers[4..7], ["1024", "1024", "64"]);
    match on {
        On::Bwrap => {
            assert_eq!(numbers[1], "1024");
            let map = numbers[7];
            assert!(!map.starts_with("0 0") || !root(), "root of the host is in the box: {map}");
        }
        // Counted by the control group: the limit of a uid would count the host's processes too.
        On::Docker => assert_ne!(numbers[1], "1024"),
    }
    assert!(out[6].starts_with("executable\nagent\nbox\n"), "{}", out[6]);
}

/// BOX B1, B7, B32: an in-box peer gets nothing of the host's routes, whatever it says; the run goes on.
pub fn box_b01_host_routes_are_closed_to_the_box(on: On) {
    let ask = |request: &str| {
        perl(&format!(
            r#"use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un("/run/sanduk/box/control.sock")) or die "no: $!";
               my $t = $ENV{{SANDUK_MINI_TOKEN}}; syswrite(S, "{request}"); my $all = ""; while (sysread(S, my $b, 4096)) {{ $all .= $b }} print substr($all, 0, 60), "\n""#
        ))
    };
    let get = |path: &str| {
        ask(&format!(
            "GET {path} HTTP/1.1\\r\\nHost: box\\r\\nx-sanduk-control: $t\\r\\nConnection: close\\r\\n\\r\\n"
        ))
    };
    let (_, _, out) = boxed(
        on,
        &[
            &get("/status?since=1"),
            &get("/health"),
            &ask(
                "DELETE /shutdown HTTP/1.1\\r\\nHost: box\\r\\nx-sanduk-control: $t\\r\\nConnection: close\\r\\n\\r\\n",
            ),
            &ask(
                "POST /start HTTP/1.1\\r\\nHost: box\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}",
            ),
        ],
    );
    for (n, answer) in out.iter().enumerate() {
        assert!(answer.starts_with("HTTP/1.1 4"), "{n}: {answer}");
    }
}

/// BOX A1: the control socket exchanged for a link is refused, not followed, and the run ends.
pub fn box_b14_an_exchanged_control_socket_is_not_followed(on: On) {
    let host =
        std::os::unix::net::UnixListener::bind(format!("/tmp/sanduk-bait-{}", std::process::id())).unwrap();
    let bait = host.local_addr().unwrap().as_pathname().unwrap().to_path_buf();
    let swap = format!(
        "rm -f /run/sanduk/box/control.sock; ln -s {} /run/sanduk/box/control.sock; sleep 60",
        bait.display()
    );
    let rig = Rig::on(on, &script(&[&swap], "done"));
    rig.run(&["x"]).code(1).says("the box no longer behaves").says("not a socket");
    host.set_nonblocking(true).unwrap();
    assert!(host.accept().is_err(), "the host connected to what the box named");
    std::fs::remove_file(bait).unwrap();
    rig.assert_clean();
}

/// BOX B38: the box does see host paths in mountinfo; neither run id nor the caller's name is in the channel's.
pub fn box_b38_the_channel_has_a_neutral_name(on: On) {
    let (rig, _, out) = boxed(on, &["grep -E '/run/sanduk|/sanduk' /proc/self/mountinfo"]);
    let id = rig.kept().file_name().unwrap().to_string_lossy().into_owned();
    assert!(out[0].contains("sbx-") && !out[0].contains(&id), "{}", out[0]);
    assert!(
        out[0].lines().find(|l| l.contains("/run/sanduk/host")).is_some_and(|l| l.contains(" ro,")),
        "{}",
        out[0]
    );
}

/// `--log-bodies` in a run: what went up and what came down, by digest; no key in it; the receipt's head is the log's.
pub fn bodies_beside_the_log(on: On) {
    let rig = Rig::on(on, &script(&["echo found > REPORT.md"], "all done"));
    rig.run(&["the task", "--log-bodies"]).code(0).says("body 001 ").says("msgs=1 ");
    let kept = rig.kept();
    let receipt = kept.join("receipt.json");
    let found = sanduk::prove::verify::verify(&kept.join("calls.jsonl"), Some(&receipt), None).unwrap();
    assert!(found.holds && found.calls > 1 && found.bodies == 2 * found.calls, "{found:?}");
    let mut sent = 0;
    for path in list(&kept.join("bodies")) {
        let out = Command::new("zcat").arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(!text.contains(KEY), "{}", path.display());
        sent += usize::from(rig.bodies().contains(&text));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
    assert_eq!(sent as u64, found.calls);
}
