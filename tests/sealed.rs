//! `tests/sealed/checks.rs` on bwrap.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "sealed/checks.rs"]
mod checks;
#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::On::Bwrap;

#[test]
fn box_b09_b10_no_byte_of_the_key_is_in_the_box() {
    checks::box_b09_b10_no_byte_of_the_key_is_in_the_box(Bwrap);
}

#[test]
fn box_b05_the_network_is_loopback_and_nothing_else() {
    checks::box_b05_the_network_is_loopback_and_nothing_else(Bwrap);
}

#[test]
fn box_b02_b04_b07_the_kernel_gives_no_way_out() {
    checks::box_b02_b04_b07_the_kernel_gives_no_way_out(Bwrap);
}

#[test]
fn box_b01_host_routes_are_closed_to_the_box() {
    checks::box_b01_host_routes_are_closed_to_the_box(Bwrap);
}

#[test]
fn box_b14_an_exchanged_control_socket_is_not_followed() {
    checks::box_b14_an_exchanged_control_socket_is_not_followed(Bwrap);
}

#[test]
fn box_b38_the_channel_has_a_neutral_name() {
    checks::box_b38_the_channel_has_a_neutral_name(Bwrap);
}

#[test]
fn bodies_beside_the_log() {
    checks::bodies_beside_the_log(Bwrap);
}
