//! An agent that attacks: PID 1, the control server, the event store, the filter. Numbers are those of the threat list.

use crate::client::{ending, shell, start, text};
use crate::small_box::{SmallBox, with_secret};
use sanduk::limits;
use sanduk::wire::control::{Event, What};
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;

/// In-box client of the control server: prints the status code of each answer. The secret is the real one.
const ASK: &str = r#"
use strict; use IO::Socket::UNIX; use Socket;
sub ask { my ($head) = @_;
  my $s = IO::Socket::UNIX->new(Peer => "/run/sanduk/box/control.sock") or return "no connection";
  print $s $head; local $/; my $r = <$s>; return defined $r && $r =~ m{^HTTP/1.1 (\d+)} ? $1 : "closed"; }
sub req { my ($m, $t, $b) = @_; $b //= "";
  return "$m $t HTTP/1.1\r\nhost: b\r\nconnection: close\r\nx-sanduk-control: $ENV{STOLEN}\r\ncontent-length: " . length($b) . "\r\n\r\n$b"; }
"#;

fn perl(script: &str) -> sanduk::wire::control::Turn {
    let mut turn = with_secret(shell(""));
    turn.argv = ["/usr/bin/perl", "-e", &format!("$| = 1; {ASK} {script}")].map(str::to_owned).to_vec();
    turn
}

#[test]
fn box_b01_the_agent_gets_no_host_route_even_with_the_secret() {
    // BOX B1: reading events away, forging answers, lifting a pause, ending the box, starting it again.
    let script = r#"
        for my $r (["GET", "/status?since=0"], ["GET", "/status?since=3"], ["GET", "/health"], ["POST", "/start", "{}"],
                   ["POST", "/message", "{}"], ["POST", "/pause"], ["POST", "/resume"], ["DELETE", "/shutdown"],
                   ["GET", "/"], ["POST", "/tool/none"]) { print ask(req(@$r)), "\n"; }"#;
    let small = SmallBox::run(perl(script));
    let events = small.client.events();
    let mut want = vec!["403"; 9];
    want.push("404");
    assert_eq!(text(&events, false), want, "stderr: {:?}", text(&events, true));
    assert_eq!(small.client.status(events.last().unwrap().n, 0).state, "idle", "the box was not shut down");
}

#[test]
fn box_b01_a_dead_connector_is_still_in_the_box() {
    // BOX B1: the peer's pid is taken at connect. A process connects, hands the socket to its child and dies.
    let script = r#"
        my $s = IO::Socket::UNIX->new(Peer => "/run/sanduk/box/control.sock") or die;
        defined(my $p = fork) or die;
        if ($p == 0) { select undef, undef, undef, 0.3; print $s req("GET", "/status?since=0"); local $/; my $r = <$s>;
            print substr($r, 9, 3), "\n"; exit 0; }
        POSIX::_exit(0);"#;
    let mut turn = perl(script);
    let inner = turn.argv[2].replace("use strict;", "use strict; use POSIX ();");
    // The agent itself must outlive both.
    turn.argv = ["/bin/sh", "-c", "/usr/bin/perl -e \"$0\"; sleep 1", &inner].map(str::to_owned).to_vec();
    let events = SmallBox::events_of(turn);
    assert_eq!(text(&events, false), ["403"], "stderr: {:?}", text(&events, true));
}

#[test]
fn box_b01_a_child_namespace_gives_no_host_identity() {
    // BOX B1: a peer in a pid namespace below ours has a pid in ours; making one is refused anyway.
    let events =
        SmallBox::events_of(shell("unshare -U -p -f --mount-proc true; echo $?; unshare -U true; echo $?"));
    let out = text(&events, false);
    assert!(out.len() == 2 && out.iter().all(|code| code != "0"), "{out:?}");
}

#[test]
fn box_b02_nothing_under_proc_sys_can_be_written() {
    let script = "for f in vm/overcommit_memory kernel/core_pattern kernel/hostname net/ipv4/ip_forward; do
        (v=$(cat /proc/sys/$f) && echo \"$v\" > /proc/sys/$f) 2>/dev/null && echo wrote $f; done; echo done";
    assert_eq!(text(&SmallBox::events_of(shell(script)), false), ["done"]);
}

#[test]
fn box_b04_no_set_id_bit_can_be_made() {
    let script = "cd /work; cp /usr/bin/true s; for m in 4755 2755 6755 u+s g+s; do chmod $m s 2>/dev/null && echo $m; done
        mkdir -m 2755 d 2>/dev/null && test -g d && echo mkdir; install -m 4755 s t 2>/dev/null && test -u t && echo install
        perl -e 'umask 0; sysopen(F, \"o\", 0x41, 04755) and print \"open\\n\"'
        chmod 755 s && chmod 1777 /tmp && echo ordinary modes work";
    let small = SmallBox::run(shell(script));
    assert_eq!(text(&small.client.events(), false), ["ordinary modes work"]);
    for entry in fs::read_dir(small.root.join("work")).unwrap() {
        use std::os::unix::fs::MetadataExt;
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o6000, 0, "{:?}", entry.file_name());
    }
}

#[test]
fn box_b05_only_the_named_socket_families_exist() {
    // BOX B5: vsock is bound to no network namespace. 1 unix, 2 inet, 10 inet6, 16 netlink are needed; the rest is refused.
    let script = r#"my (@got, $s); for my $f (0..50) { push @got, $f if socket($s, $f, SOCK_STREAM, 0) or socket($s, $f, SOCK_DGRAM, 0)
        or socket($s, $f, SOCK_RAW, 0); } print join(" ", @got), "\n";"#;
    assert_eq!(text(&SmallBox::events_of(perl(script)), false), ["1 2 10 16"]);
}

#[test]
fn box_b07_pid_1_can_be_neither_stopped_nor_killed() {
    let script = "kill -STOP 1; kill -KILL 1; kill -TSTP 1; kill -USR1 1; kill -QUIT 1; kill -SEGV 1
        for s in $(seq 64); do test $s = 15 || kill -$s 1 2>/dev/null; done; echo > /work/tried
        until test -e /work/go; do sleep 0.05; done; echo after";
    let small = SmallBox::run(shell(script));
    small.wait_for("tried", 1);
    assert_eq!(small.client.status(0, 0).state, "running", "the control server answers");
    fs::write(small.root.join("work/go"), b"x").unwrap();
    let events = small.client.events();
    assert_eq!(text(&events, false), ["after"]);
    assert_eq!(ending(&events), (Some(0), None));
}

#[test]
fn box_b07_the_dead_mans_switch_cannot_be_held() {
    let mut small = SmallBox::new();
    let mut start = start(perl(
        r#"open(F, ">", "/work/up"); print F 1; close F; while (1) { kill "STOP", 1; kill "CONT", 1;
            ask(req("GET", "/health")); ask(req("GET", "/status?since=0")); }"#,
    ));
    start.grace_seconds = 2;
    small.start(&start);
    small.wait_for("up", 1);
    assert_eq!(small.ended().code(), Some(1));
}

#[test]
fn box_b07_killing_everybody_ends_the_turn_and_not_the_box() {
    let small = SmallBox::run(shell("sleep 1000 & echo before; kill -KILL -1; echo after"));
    let events = small.client.events();
    // It spares its caller and PID 1 (kill(2)).
    assert_eq!(text(&events, false), ["before", "after"]);
    assert_eq!(small.client.status(events.last().unwrap().n, 0).state, "idle");
}

#[test]
fn box_b08_a_full_store_stops_the_agent_and_loses_nothing() {
    let small = SmallBox::new();
    let mut start = start(shell("seq 1 150000; echo end >&2"));
    start.event_bytes = 64 * 1024;
    small.start(&start);
    // Asking again without acknowledging shows what is kept: it never grows over the bound, and the agent stands still.
    let first = loop {
        let (one, two) = (small.client.status(0, 0), small.client.status(0, 0));
        if !one.events.is_empty() && one.events.len() == two.events.len() && bytes(&one.events) > 63 * 1024 {
            break two;
        }
    };
    assert!(bytes(&first.events) <= 64 * 1024, "{}", bytes(&first.events));
    assert_eq!(first.state, "running");
    let events = small.client.events();
    assert!(text(&events, false).iter().map(|l| l.parse::<u32>().unwrap()).eq(1..=150_000));
    assert_eq!(text(&events, true), ["end"]);
    assert_eq!(ending(&events), (Some(0), None));
}

fn bytes(events: &[Event]) -> usize {
    events
        .iter()
        .map(|e| if let What::Stdout(l) = &e.what { l.text.len() + limits::EVENT_COST } else { 0 })
        .sum()
}

#[test]
fn a_box_with_a_full_store_can_still_be_ended() {
    let mut small = SmallBox::new();
    let mut start = start(shell("yes"));
    start.event_bytes = 16 * 1024;
    small.start(&start);
    while bytes(&small.client.status(0, 1).events) < 15 * 1024 {}
    assert_eq!(small.client.call("DELETE", "/shutdown", b"").unwrap().status, 200);
    assert_eq!(small.ended().code(), Some(0));
}

#[test]
fn box_b14_a_flood_of_connections_does_not_keep_the_host_out() {
    // BOX B14: eight processes open connections as fast as they can and hold them; some send half a head, some drip.
    let script = r#"
        for my $n (1..8) { next if fork; my @held; my $i = 0;
            while (1) { my $s = IO::Socket::UNIX->new(Peer => "/run/sanduk/box/control.sock") or next;
                print $s "GET /status?since=0 HTTP/1.1\r\nx: " if $i++ % 2; push @held, $s; shift @held if @held > 800; } }
        open(F, ">", "/work/up"); print F 1; close F; sleep 1000;"#;
    let small = SmallBox::run(perl(script));
    small.wait_for("up", 1);
    for _ in 0..50 {
        assert_eq!(small.client.status(0, 0).state, "running");
    }
    assert_eq!(small.client.call("DELETE", "/shutdown", b"").unwrap().status, 200);
}

#[test]
fn box_b14_a_box_at_its_process_limit_still_answers() {
    // BOX B14: threads count against the limit of processes; those of the server exist before the agent does.
    let small = SmallBox::at_process_limit(40);
    let script = "use POSIX; while (1) { my $p = fork; if (!defined $p) { open(F, '>', '/work/full'); print F 1; close F; sleep 1 }
        elsif ($p == 0) { sleep 1000 } }";
    let mut turn = shell("");
    turn.argv = ["/usr/bin/perl", "-e", script].map(str::to_owned).to_vec();
    small.start(&start(turn));
    small.wait_for("full", 1);
    for _ in 0..10 {
        assert_eq!(small.client.status(0, 0).state, "running");
    }
    assert_eq!(small.client.call("DELETE", "/shutdown", b"").unwrap().status, 200);
}

#[test]
fn box_b15_and_b35_every_thread_of_pid_1_is_filtered_and_so_is_the_agent() {
    let small =
        SmallBox::run(shell("grep -E '^(Seccomp|NoNewPrivs|CapEff|CapBnd):' /proc/self/status; sleep 1000"));
    let mut tasks = 0;
    for task in fs::read_dir(format!("/proc/{}/task", small.inside())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
        tasks += 1;
    }
    assert!(tasks > limits::CONTROL_HOST_THREADS, "the server's threads are among them");
    let mut out = Vec::new();
    while out.len() < 4 {
        out = text(&small.client.status(0, 20).events, false);
    }
    let want = ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"];
    assert_eq!(out, want);
}

#[test]
fn box_b16_what_the_agent_prints_is_never_an_event_of_ours() {
    let forged = r#"{"n":99,"what":{"kind":"turn_end","turn":"t1","code":0,"signal":null}}"#;
    let events = SmallBox::events_of(shell(&format!("printf '%s\\r\\n' '{forged}'; exit 9")));
    assert_eq!(text(&events, false), [format!("{forged}\r")]);
    assert_eq!(ending(&events), (Some(9), None));
}

#[test]
fn box_a6_and_b33_pid_1_shows_the_agent_none_of_its_memory() {
    let script = "for f in environ maps mem auxv; do cat /proc/1/$f >/dev/null 2>&1 && echo read $f; done
        for l in exe root cwd fd/0 fd/1 fd/2; do readlink /proc/1/$l >/dev/null 2>&1 && echo link $l; done
        for t in /proc/1/task/*; do cat $t/environ >/dev/null 2>&1 && echo $t; done
        (echo forged > /proc/1/fd/1) 2>/dev/null && echo wrote; echo done";
    assert_eq!(text(&SmallBox::events_of(shell(script)), false), ["done"]);
}

#[test]
fn box_b33_the_agent_inherits_no_descriptor() {
    let out = text(&SmallBox::events_of(shell("ls /proc/self/fd")), false);
    assert_eq!(out, ["0", "1", "2", "3"], "3 is the directory that ls reads");
}

#[test]
fn the_agent_may_delete_the_socket_and_only_hurts_itself() {
    let mut small = SmallBox::new();
    let mut start = start(shell("rm -rf /run/sanduk/box/*; echo > /work/up; exec sleep 1000"));
    start.grace_seconds = 2;
    small.start(&start);
    small.wait_for("up", 1);
    assert!(small.client.call("GET", "/status?since=0", b"").is_err());
    assert_eq!(small.ended().code(), Some(1), "a box that cannot be reached ends itself");
}

#[test]
fn the_forwarder_reaches_the_relay_and_the_relay_only() {
    let small = SmallBox::new();
    let relay = UnixListener::bind(small.root.join("host/relay.sock")).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(small.root.join("host/relay.sock"), open).unwrap();
    let script = r#"use IO::Socket::INET; $| = 1;
        my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:8377") or die "refused: $!"; print $s "ask\n"; print scalar <$s>;
        for my $a ("1.1.1.1:53", "169.254.169.254:80", "10.0.0.1:80") {
            print "reached $a\n" if IO::Socket::INET->new(PeerAddr => $a, Timeout => 5); }
        print join(" ", map { m{([^/]+)$} } glob "/sys/class/net/* /proc/sys/net/ipv4/conf/*"), "\n";"#;
    let mut turn = shell("");
    turn.argv = ["/usr/bin/perl", "-e", script].map(str::to_owned).to_vec();
    let mut start = start(turn);
    start.forward_port = 8377;
    small.start(&start);
    let (mut conn, _) = relay.accept().unwrap();
    let mut got = [0; 4];
    conn.read_exact(&mut got).unwrap();
    std::io::Write::write_all(&mut conn, b"answer\n").unwrap();
    let events = small.client.events();
    let out = text(&events, false);
    assert_eq!((&got, out[0].as_str()), (b"ask\n", "answer"), "stderr: {:?}", text(&events, true));
    assert_eq!(out[1..], ["all default lo"], "no address is reached, no interface but lo");
}
