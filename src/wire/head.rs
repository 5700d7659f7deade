//! Writes HTTP/1.1 heads, requests and answers. All that goes in is checked as `http` checks what it reads, so that a value cannot add a
//! field. Called by the relay, the control server and their clients.

use super::http::{Bad, check_method, check_name, check_target, check_value, trimmed};
use super::status::reason;

/// What a head of ours takes beside its target: there at once, so that it is not copied while it grows and a copy that holds a key is
/// not left behind.
const ROOM: usize = 2048;
/// Of the largest `u64`.
const DIGITS: usize = 20;

/// Builds a head. All that goes in is checked as `request` checks it, so that a value cannot add a field.
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// `METHOD target HTTP/1.1`; the target in origin-form.
    pub fn request(method: &str, target: &str) -> Result<Writer, Bad> {
        Writer::request_in(Vec::new(), method, target)
    }

    /// The same in the memory of an earlier head, whose bytes are lost: allocating takes a lock that all threads share.
    pub fn request_in(room: Vec<u8>, method: &str, target: &str) -> Result<Writer, Bad> {
        check_method(method.as_bytes())?;
        check_target(target.as_bytes())?;
        let mut w = Writer::within(room, ROOM.saturating_add(target.len()));
        w.push(&[method.as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\n"]);
        Ok(w)
    }

    /// `HTTP/1.1 status reason`. A status that has not three digits is our own fault and goes out as 500.
    pub fn response(status: u16) -> Writer {
        Writer::response_in(Vec::new(), status)
    }

    /// The same in the memory of an earlier head.
    pub fn response_in(room: Vec<u8>, status: u16) -> Writer {
        let status = if (100..600).contains(&status) { status } else { 500 };
        let mut w = Writer::within(room, ROOM);
        let mut digits = [0; DIGITS];
        w.push(&[
            b"HTTP/1.1 ",
            decimal(status.into(), &mut digits),
            b" ",
            reason(status).as_bytes(),
            b"\r\n",
        ]);
        w
    }

    fn within(mut room: Vec<u8>, least: usize) -> Writer {
        room.clear();
        room.reserve(least);
        Writer { out: room }
    }

    /// Adds `name: value`; white space around the value is left out.
    pub fn field(&mut self, name: &str, value: &[u8]) -> Result<(), Bad> {
        check_name(name.as_bytes())?;
        check_value(value)?;
        self.push(&[name.as_bytes(), b": ", trimmed(value), b"\r\n"]);
        Ok(())
    }

    /// Adds `name: value` of a value in two parts, which is never copied into one.
    pub fn joined(&mut self, name: &str, value: [&[u8]; 2]) -> Result<(), Bad> {
        check_name(name.as_bytes())?;
        value.iter().try_for_each(|part| check_value(part))?;
        self.push(&[name.as_bytes(), b": ", value[0], value[1], b"\r\n"]);
        Ok(())
    }

    /// Adds `name: value` for a number.
    pub fn number(&mut self, name: &str, value: u64) -> Result<(), Bad> {
        self.field(name, decimal(value, &mut [0; DIGITS]))
    }

    fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.out.extend_from_slice(part);
        }
    }

    /// Ends the head and hands its bytes over.
    pub fn end(mut self) -> Vec<u8> {
        self.out.extend_from_slice(b"\r\n");
        self.out
    }
}

/// `n` in decimal, written to the end of `room`.
fn decimal(mut n: u64, room: &mut [u8; DIGITS]) -> &[u8] {
    let mut from = DIGITS;
    for digit in room.iter_mut().rev() {
        from = from.saturating_sub(1);
        *digit = b'0'.saturating_add(u8::try_from(n % 10).unwrap_or(0));
        n /= 10;
        if n == 0 {
            break;
        }
    }
    room.get(from..).unwrap_or_default()
}
