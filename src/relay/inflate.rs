//! Inflates a gzip answer on its way through (RFC 1952), piece by piece, in memory of a fixed size. Reads on where a checksum is wrong,
//! because a forgiving client would: what anybody can inflate has been seen here. Called by `usage`.

use flate2::{Decompress, FlushDecompress, Status};

/// Bytes inflated at a time.
const PIECE: usize = 16 * 1024;

/// What the next byte belongs to.
#[derive(Clone, Copy)]
enum At {
    /// The ten fixed bytes of a member's head, of which so many were read.
    Head(usize),
    /// Two bytes for the length of the extra field; then its bytes.
    ExtraLength(Option<u8>),
    Extra(usize),
    /// Text up to a zero byte.
    Name,
    Comment,
    /// Two bytes of a checksum of the head.
    HeadSum(usize),
    Data,
    /// Eight bytes of checksum and length.
    Tail(usize),
    /// Behind what is no gzip any more: no reader gets further.
    Over,
}

/// One answer being inflated.
pub struct Inflater {
    at: At,
    flags: u8,
    deflate: Decompress,
    piece: Box<[u8]>,
}

impl Default for Inflater {
    fn default() -> Inflater {
        Inflater {
            at: At::Head(0),
            flags: 0,
            deflate: Decompress::new(false),
            piece: vec![0; PIECE].into_boxed_slice(),
        }
    }
}

impl Inflater {
    /// Takes the next bytes; `seen` gets everything that they make readable.
    pub fn push(&mut self, mut bytes: &[u8], seen: &mut dyn FnMut(&[u8])) {
        while let Some((byte, rest)) = bytes.split_first() {
            match self.at {
                At::Over => return,
                At::Data => bytes = self.inflate(bytes, seen),
                at => {
                    self.at = self.outside(at, *byte);
                    bytes = rest;
                }
            }
        }
    }

    /// One byte of a member's head or tail.
    fn outside(&mut self, at: At, byte: u8) -> At {
        match at {
            At::Head(0) if byte != 0x1F => At::Over,
            At::Head(1) if byte != 0x8B => At::Over,
            At::Head(2) if byte != 8 => At::Over,
            At::Head(n) => {
                if n == 3 {
                    self.flags = byte;
                }
                if n == 9 { self.after(0) } else { At::Head(n.saturating_add(1)) }
            }
            At::ExtraLength(None) => At::ExtraLength(Some(byte)),
            At::ExtraLength(Some(low)) => match usize::from(u16::from_le_bytes([low, byte])) {
                0 => self.after(1),
                n => At::Extra(n),
            },
            At::Extra(1) => self.after(1),
            At::Extra(n) => At::Extra(n.saturating_sub(1)),
            At::Name if byte == 0 => self.after(2),
            At::Comment if byte == 0 => self.after(3),
            At::HeadSum(1) => self.after(4),
            At::HeadSum(_) => At::HeadSum(1),
            At::Tail(7) => At::Head(0),
            At::Tail(n) => At::Tail(n.saturating_add(1)),
            At::Name | At::Comment | At::Data | At::Over => at,
        }
    }

    /// What follows part `done` of a head, by its flags (RFC 1952 section 2.3.1).
    fn after(&mut self, done: u8) -> At {
        let has = |flag: u8| self.flags & flag != 0;
        match done {
            0 if has(4) => At::ExtraLength(None),
            0 | 1 if has(8) => At::Name,
            0..=2 if has(16) => At::Comment,
            0..=3 if has(2) => At::HeadSum(0),
            _ => {
                self.deflate.reset(false);
                At::Data
            }
        }
    }

    /// Inflates until the member or the bytes end; gives what is left of them.
    fn inflate<'b>(&mut self, mut bytes: &'b [u8], seen: &mut dyn FnMut(&[u8])) -> &'b [u8] {
        loop {
            let (read, made) = (self.deflate.total_in(), self.deflate.total_out());
            let status = self.deflate.decompress(bytes, &mut self.piece, FlushDecompress::None);
            let passed = |now: u64, before: u64| usize::try_from(now.saturating_sub(before)).unwrap_or(0);
            let used = passed(self.deflate.total_in(), read);
            let length = passed(self.deflate.total_out(), made);
            bytes = bytes.get(used..).unwrap_or_default();
            if length > 0 {
                seen(self.piece.get(..length).unwrap_or_default());
            }
            match status {
                Ok(Status::StreamEnd) => {
                    self.at = At::Tail(0);
                    return bytes;
                }
                Err(_) => {
                    self.at = At::Over;
                    return &[];
                }
                // Nothing more comes of these bytes.
                Ok(_) if used == 0 && length == 0 => return &[],
                Ok(_) => {}
            }
        }
    }
}
