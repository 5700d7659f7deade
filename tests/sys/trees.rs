//! Trees that an agent wrote: removal and set-id bits, at any depth.

use super::*;

/// Makes a chain of directories `depth` deep below `name`, a file in every thousandth, and `bits` on the deepest file.
fn deep(top: &Path, name: &str, depth: usize, bits: u32) {
    std::fs::create_dir(top.join(name)).unwrap();
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(top.join(name), flags, Mode::empty()).unwrap();
    for level in 1..=depth {
        if level % 1000 == 0 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let file = rustix::fs::openat(&here, "f", flags, Mode::from_bits_truncate(0o644)).unwrap();
            if level == depth {
                rustix::fs::fchmod(&file, Mode::from_bits_truncate(bits)).unwrap();
            }
        }
        rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "d", flags, Mode::empty()).unwrap();
    }
}

/// BOX B28: `std::fs::remove_dir_all` runs out of descriptors at this depth, and a sweep would fail for ever.
#[test]
fn box_b28_deep_trees_are_removed() {
    let dir = Scratch::fast();
    let d = dir.open();
    deep(&dir.0, "deep", 20_000, 0o644);
    d.remove_tree("deep").unwrap();
    assert!(d.names().unwrap().is_empty());
    d.remove_tree("deep").unwrap();
}

#[test]
fn box_b28_removal_follows_no_link_and_takes_all() {
    let dir = Scratch::fast();
    let outside = Scratch::fast();
    std::fs::write(outside.0.join("kept"), b"kept").unwrap();
    let top = dir.0.join("tree");
    std::fs::create_dir_all(top.join("a/b/c")).unwrap();
    symlink(&outside.0, top.join("link")).unwrap();
    symlink(&outside.0, top.join("a/b/link")).unwrap();
    symlink(outside.0.join("kept"), top.join("a/kept")).unwrap();
    std::fs::hard_link(outside.0.join("kept"), top.join("a/hard")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, top.join("a/fifo"), Mode::RWXU).unwrap();
    let _socket = net::listen_unix(&top.join("a"), "socket", 0o600).unwrap();
    // Names that are no UTF-8, more entries than one batch, directories that nobody may enter.
    use std::os::unix::ffi::OsStrExt;
    std::fs::write(top.join(OsStr::from_bytes(b"\xff\xfe\n")), b"").unwrap();
    std::fs::create_dir(top.join("many")).unwrap();
    for i in 0..2500 {
        std::fs::create_dir_all(top.join(format!("many/{i}/x"))).unwrap();
    }
    for closed in ["a/b/c", "a/b", "many/7/x", "many/7"] {
        std::fs::set_permissions(top.join(closed), PermissionsExt::from_mode(0o0)).unwrap();
    }
    dir.open().remove_tree("tree").unwrap();
    assert!(dir.open().names().unwrap().is_empty());
    assert_eq!(std::fs::read(outside.0.join("kept")).unwrap(), b"kept");
    // A link is removed, not what it leads to.
    symlink(&outside.0, dir.0.join("link")).unwrap();
    dir.open().remove_tree("link").unwrap();
    assert_eq!(outside.open().names().unwrap(), ["kept"]);
}

/// What closed directories cost an ordinary user; root is stopped by nothing, so the test above does not show it.
#[test]
fn box_b28_removal_by_an_ordinary_user() {
    if !is_root() {
        return; // The other tests run as an ordinary user then.
    }
    let dir = Scratch::new();
    std::fs::set_permissions(&dir.0, PermissionsExt::from_mode(0o777)).unwrap();
    let own = exec::own().unwrap();
    let copy = dir.0.join("tests");
    std::fs::copy(own, &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    let mut o =
        order(copy.to_str().unwrap(), &["--exact", "trees::box_b28_removal_follows_no_link_and_takes_all"]);
    o.user = Some((64_200, 64_200));
    let told = output(o);
    assert!(told.contains("1 passed"), "{told}");
}

#[test]
fn box_b28_removal_stops_at_a_mount() {
    if !is_root() {
        return; // Only root can mount.
    }
    let dir = Scratch::new();
    let host = Scratch::new();
    std::fs::write(host.0.join("kept"), b"kept").unwrap();
    std::fs::create_dir_all(dir.0.join("tree/a/mounted")).unwrap();
    std::fs::create_dir_all(dir.0.join("top")).unwrap();
    for at in ["tree/a/mounted", "top"] {
        output(order("/bin/mount", &["--bind", host.0.to_str().unwrap(), dir.0.join(at).to_str().unwrap()]));
    }
    let results = [dir.open().remove_tree("tree"), dir.open().remove_tree("top")];
    let cleared = dir.open().clear_set_id(1000);
    // The removal moves the mount point's parent up, or stops before it; it is unmounted wherever it is.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours =
        mounts.lines().filter_map(|l| l.split(' ').nth(4)).filter(|p| p.starts_with(dir.0.to_str().unwrap()));
    for place in ours.map(str::to_owned).collect::<Vec<_>>() {
        output(order("/bin/umount", &[&place]));
    }
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert_eq!(std::fs::read(host.0.join("kept")).unwrap(), b"kept");
    assert_eq!(cleared.unwrap(), (Vec::new(), false));
}

/// BOX B4: set-id files that an agent planted would act on the host.
#[test]
fn box_b4_set_id_bits_are_cleared() {
    let dir = Scratch::new();
    let outside = Scratch::new();
    let mode = |p: &Path| std::fs::symlink_metadata(p).unwrap().permissions().mode() & 0o7777;
    let plant = |p: &Path, bits| {
        std::fs::write(p, b"").unwrap();
        std::fs::set_permissions(p, PermissionsExt::from_mode(bits)).unwrap();
    };
    plant(&outside.0.join("host"), 0o4755);
    std::fs::create_dir_all(dir.0.join("a/b")).unwrap();
    std::fs::create_dir_all(dir.0.join("z")).unwrap();
    plant(&dir.0.join("root"), 0o6755);
    plant(&dir.0.join("a/one"), 0o4711);
    plant(&dir.0.join("a/b/two"), 0o2000);
    plant(&dir.0.join("z/plain"), 0o1755);
    std::fs::set_permissions(dir.0.join("z"), PermissionsExt::from_mode(0o2755)).unwrap();
    symlink(outside.0.join("host"), dir.0.join("link")).unwrap();
    symlink(&outside.0, dir.0.join("a/dirlink")).unwrap();
    let (mut changed, unfinished) = dir.open().clear_set_id(1000).unwrap();
    changed.sort();
    assert_eq!(changed, ["a/b/two", "a/one", "root"]);
    assert!(!unfinished);
    let after = ["root", "a/one", "a/b/two", "z/plain"].map(|p| mode(&dir.0.join(p)));
    assert_eq!(after, [0o755, 0o711, 0, 0o1755]);
    assert_eq!(mode(&outside.0.join("host")), 0o4755);
    // Nothing is left to do; and a walk that was cut says so.
    assert_eq!(dir.open().clear_set_id(1000).unwrap(), (Vec::new(), false));
    assert!(dir.open().clear_set_id(3).unwrap().1);
}

#[test]
fn box_b4_set_id_bits_at_any_depth() {
    let dir = Scratch::fast();
    deep(&dir.0, "deep", 5000, 0o4755);
    let (changed, unfinished) = dir.open().clear_set_id(100_000).unwrap();
    assert!(!unfinished);
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0], format!("deep/{}f", "d/".repeat(4999)));
}
