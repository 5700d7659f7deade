//! Seccomp programs from rows: "this call, when its arguments look like that, ends so". A small assembler whose jumps are labels;
//! it installs nothing. `confine` holds the rows. Arguments are compared by their low 32 bits, which is all the kernel reads
//! of the `int`, `mode_t` and flag arguments that the rows look at.

use libc::sock_filter;
use std::ffi::c_long;

/// How a call that a row matches ends.
#[derive(Clone, Copy)]
pub enum Then {
    /// It is made.
    Allow,
    /// It fails with this errno.
    Fail(i32),
}

/// A condition on one argument (0 to 5).
#[derive(Clone, Copy)]
pub enum When {
    /// `argument & mask` is one of `values`.
    OneOf {
        /// Which argument.
        argument: u32,
        /// Bits that are compared.
        mask: u32,
        /// What they may be.
        values: &'static [u32],
    },
    /// `argument & mask` is not zero.
    AnyOf {
        /// Which argument.
        argument: u32,
        /// Bits of which one is enough.
        mask: u32,
    },
}

/// The first row whose call and conditions (all of them) fit decides; a call that no row fits is made.
pub struct Row(pub c_long, pub &'static [When], pub Then);

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the seccomp filters know the call numbers of x86_64 and aarch64 only");

// Offsets in `struct seccomp_data` (seccomp(2)).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// On x86_64, calls of the x32 ABI carry this bit: another table of the same calls, which the rows would not see.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

#[derive(Clone, Copy)]
struct Label(usize);

enum Op {
    /// A = the word at this offset.
    Load(u32),
    /// A &= mask.
    And(u32),
    /// Goes to the first label where the test holds, else to the second; `None`: the next instruction.
    Jump(u32, u32, Option<Label>, Option<Label>),
    /// Ends the program.
    Return(u32),
}

#[derive(Default)]
struct Program {
    ops: Vec<Op>,
    /// Where each label stands, once it is placed.
    labels: Vec<Option<usize>>,
}

/// The program for these rows: another architecture or ABI is killed, then the rows in order, then allow.
pub fn program(rows: &[&[Row]]) -> Option<Vec<sock_filter>> {
    let mut p = Program::default();
    let ours = p.label();
    p.ops.push(Op::Load(ARCHITECTURE));
    p.ops.push(Op::Jump(libc::BPF_JEQ, ARCH, Some(ours), None));
    p.ops.push(Op::Return(libc::SECCOMP_RET_KILL_PROCESS));
    p.place(ours);
    p.ops.push(Op::Load(NUMBER));
    #[cfg(target_arch = "x86_64")]
    {
        let native = p.label();
        p.ops.push(Op::Jump(libc::BPF_JGE, X32, None, Some(native)));
        p.ops.push(Op::Return(libc::SECCOMP_RET_KILL_PROCESS));
        p.place(native);
    }
    for row in rows.iter().copied().flatten() {
        p.row(row)?;
    }
    p.ops.push(Op::Return(libc::SECCOMP_RET_ALLOW));
    p.assemble()
}

impl Program {
    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.ops.len());
    }

    /// Expects the call's number in A and leaves it there.
    fn row(&mut self, Row(call, conditions, then): &Row) -> Option<()> {
        let end = self.label();
        self.ops.push(Op::Jump(libc::BPF_JEQ, u32::try_from(*call).ok()?, None, Some(end)));
        let otherwise = self.label();
        for condition in *conditions {
            let (argument, mask) = match condition {
                When::OneOf { argument, mask, .. } | When::AnyOf { argument, mask } => (*argument, *mask),
            };
            self.ops.push(Op::Load(ARGUMENTS + 8 * argument));
            match condition {
                When::OneOf { values, .. } => {
                    let holds = self.label();
                    self.ops.push(Op::And(mask));
                    for value in *values {
                        self.ops.push(Op::Jump(libc::BPF_JEQ, *value, Some(holds), None));
                    }
                    // Always true (A >= 0): an unconditional jump.
                    self.ops.push(Op::Jump(libc::BPF_JGE, 0, Some(otherwise), None));
                    self.place(holds);
                }
                When::AnyOf { .. } => self.ops.push(Op::Jump(libc::BPF_JSET, mask, None, Some(otherwise))),
            }
        }
        self.ops.push(Op::Return(match then {
            Then::Allow => libc::SECCOMP_RET_ALLOW,
            Then::Fail(errno) => libc::SECCOMP_RET_ERRNO | errno.unsigned_abs(),
        }));
        self.place(otherwise);
        if !conditions.is_empty() {
            self.ops.push(Op::Load(NUMBER));
        }
        self.place(end);
        Some(())
    }

    /// `None`: a jump longer than BPF has (255), or to a label that was never placed; both are faults of the rows.
    fn assemble(&self) -> Option<Vec<sock_filter>> {
        let mut code = Vec::with_capacity(self.ops.len());
        for (here, op) in self.ops.iter().enumerate() {
            let distance = |to: &Option<Label>| match to {
                None => Some(0),
                Some(label) => u8::try_from(self.labels[label.0]?.checked_sub(here + 1)?).ok(),
            };
            let (class, k, jt, jf) = match op {
                Op::Load(offset) => (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, *offset, 0, 0),
                Op::And(mask) => (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, *mask, 0, 0),
                Op::Jump(test, k, yes, no) => {
                    (libc::BPF_JMP | test | libc::BPF_K, *k, distance(yes)?, distance(no)?)
                }
                Op::Return(value) => (libc::BPF_RET | libc::BPF_K, *value, 0, 0),
            };
            code.push(sock_filter { code: u16::try_from(class).ok()?, jt, jf, k });
        }
        Some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would: the four kinds of instruction that `assemble` makes.
    fn run(code: &[sock_filter], arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [0u8; 64];
        data[0..4].copy_from_slice(&number.to_le_bytes());
        data[4..8].copy_from_slice(&arch.to_le_bytes());
        for (i, a) in arguments.iter().enumerate() {
            data[16 + 8 * i..24 + 8 * i].copy_from_slice(&a.to_le_bytes());
        }
        let (mut at, mut a) = (0usize, 0u32);
        loop {
            let op = &code[at];
            at += 1;
            let class = u32::from(op.code);
            match class & 7 {
                0 => a = u32::from_le_bytes(data[op.k as usize..][..4].try_into().unwrap()),
                4 => a &= op.k,
                5 => {
                    let holds = match class & 0xf0 {
                        libc::BPF_JEQ => a == op.k,
                        libc::BPF_JGE => a >= op.k,
                        libc::BPF_JSET => a & op.k != 0,
                        other => panic!("jump {other}"),
                    };
                    at += usize::from(if holds { op.jt } else { op.jf });
                }
                6 => return op.k,
                other => panic!("class {other}"),
            }
        }
    }

    const ROWS: &[Row] = &[
        Row(
            41,
            &[
                When::OneOf { argument: 0, mask: u32::MAX, values: &[2, 10] },
                When::OneOf { argument: 1, mask: 0xf, values: &[1] },
            ],
            Then::Allow,
        ),
        Row(41, &[], Then::Fail(13)),
        Row(
            2,
            &[When::AnyOf { argument: 1, mask: 0o100 }, When::AnyOf { argument: 2, mask: 0o6000 }],
            Then::Fail(1),
        ),
        Row(3, &[], Then::Fail(38)),
    ];

    #[test]
    fn the_first_row_that_fits_decides() {
        let code = program(&[ROWS]).unwrap();
        let at = |n, a: [u64; 3]| run(&code, ARCH, n, [a[0], a[1], a[2], 0, 0, 0]);
        let fail = |errno: u32| libc::SECCOMP_RET_ERRNO | errno;
        let allow = libc::SECCOMP_RET_ALLOW;
        for (family, kind, wanted) in
            [(2, 1, allow), (10, 0x80001, allow), (10, 2, fail(13)), (1, 1, fail(13)), (16, 1, fail(13))]
        {
            assert_eq!(at(41, [family, kind, 0]), wanted, "socket({family}, {kind})");
        }
        // The high half of a register is not part of an int.
        assert_eq!(at(41, [0x1_0000_0001, 1, 0]), fail(13));
        assert_eq!(at(2, [0, 0o101, 0o4755]), fail(1));
        assert_eq!(at(2, [0, 0o101, 0o755]), allow);
        assert_eq!(at(2, [0, 0o1, 0o4755]), allow);
        assert_eq!(at(3, [0; 3]), fail(38));
        assert_eq!(at(4, [0; 3]), allow);
    }

    #[test]
    fn another_architecture_or_abi_is_killed() {
        let code = program(&[ROWS]).unwrap();
        assert_eq!(run(&code, 0x4000_0003, 4, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(run(&code, ARCH, X32 | 4, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
    }
}
