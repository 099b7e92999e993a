// SPDX-License-Identifier: GPL-2.0

//! The module's parameters as typed values (README.md, parameters).
//!
//! The kernel takes integers only; [`check`] refuses to load the module with a value that has no
//! meaning, so the getters need no error path.

use core::borrow::Borrow;

use kernel::prelude::*;

use crate::module_parameters;

/// Longest time limit that may be asked for, in milliseconds: one hour.
const MAX_TIMEOUT_MS: u32 = 3_600_000;

/// Longest doorbell delay that may be asked for, in microseconds.
pub(crate) const MAX_DOORBELL_USECS: u32 = 1_000;

/// The revision of MPA that a connection request of ours carries (RFC 5044, RFC 6581).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MpaRevision {
    /// RFC 5044.
    One,
    /// RFC 6581: enhanced connection set-up.
    Two,
}

/// Reads a parameter; 7.2 hands out a reference and 7.3 a copy.
macro_rules! value {
    ($name:ident) => {{
        let value: u32 = *Borrow::borrow(&module_parameters::$name.value());
        value
    }};
}

/// The default of an old name, which no value in range equals: the parameter was not given.
const NOT_GIVEN: u32 = u32::MAX;

/// Reads a parameter that may be given under its old name, which then counts.
macro_rules! renamed {
    ($name:ident, $old:ident) => {
        match value!($old) {
            NOT_GIVEN => value!($name),
            old => old,
        }
    };
}

/// Whether every FPDU shall carry a CRC.
pub(crate) fn crc() -> bool {
    value!(crc) != 0
}

/// Whether the peer shall put markers into what it sends us.
pub(crate) fn markers() -> bool {
    value!(markers) != 0
}

/// The MPA revision of our requests.
pub(crate) fn mpa_revision() -> MpaRevision {
    match value!(mpa_rev) {
        1 => MpaRevision::One,
        _ => MpaRevision::Two,
    }
}

/// Whether to connect again with MPA revision 1 when a peer does not know revision 2.
pub(crate) fn rev1_fallback() -> bool {
    value!(rev1_fallback) != 0
}

/// Whether our requests ask for peer-to-peer mode.
pub(crate) fn peer_to_peer() -> bool {
    value!(peer_to_peer) != 0
}

/// Limit of TCP connection set-up, in milliseconds: 1 to [`MAX_TIMEOUT_MS`].
pub(crate) fn connect_timeout_ms() -> u32 {
    value!(connect_timeout_ms)
}

/// Limit of waiting for a peer's MPA request, in milliseconds: 1 to [`MAX_TIMEOUT_MS`].
pub(crate) fn mpa_request_timeout_ms() -> u32 {
    value!(mpa_request_timeout_ms)
}

/// Limit of waiting for a peer's MPA reply, in milliseconds: 1 to [`MAX_TIMEOUT_MS`].
pub(crate) fn mpa_reply_timeout_ms() -> u32 {
    value!(mpa_reply_timeout_ms)
}

/// The TCP port of the rendezvous: where queue pairs connect without rdma_cm, 1 to 65535; 0: none.
pub(crate) fn rendezvous_port() -> u16 {
    u16::try_from(renamed!(rendezvous_port, direct_port)).unwrap_or(0)
}

/// How long work requests of such a queue pair wait for the connection, in milliseconds: 1 to
/// [`MAX_TIMEOUT_MS`]. No less than that; longer if the attributes of the queue pair say so.
pub(crate) fn rendezvous_timeout_ms() -> u32 {
    renamed!(rendezvous_timeout_ms, direct_timeout_ms)
}

/// The longest delay of a doorbell that follows others in quick succession, in microseconds: 0
/// (none) to [`MAX_DOORBELL_USECS`].
#[inline]
pub(crate) fn doorbell_coalesce_usecs() -> u32 {
    renamed!(doorbell_coalesce_usecs, gather_us)
}

/// How long a Send waits for a receive where the queue pair's attributes do not tell, in
/// milliseconds: 0 (not at all) to [`MAX_TIMEOUT_MS`].
pub(crate) fn rnr_timeout_ms() -> u32 {
    value!(rnr_timeout_ms)
}

/// Tells whether every parameter has a meaning. Called once, before anything reads one.
///
/// # Errors
///
/// `EINVAL` for a value out of range; the log names the parameter.
pub(crate) fn check() -> Result {
    let ranges = [
        ("crc", value!(crc), 0, 1),
        ("markers", value!(markers), 0, 1),
        ("mpa_rev", value!(mpa_rev), 1, 2),
        ("rev1_fallback", value!(rev1_fallback), 0, 1),
        ("peer_to_peer", value!(peer_to_peer), 0, 1),
        (
            "connect_timeout_ms",
            connect_timeout_ms(),
            1,
            MAX_TIMEOUT_MS,
        ),
        (
            "mpa_request_timeout_ms",
            mpa_request_timeout_ms(),
            1,
            MAX_TIMEOUT_MS,
        ),
        (
            "mpa_reply_timeout_ms",
            mpa_reply_timeout_ms(),
            1,
            MAX_TIMEOUT_MS,
        ),
        (
            "rendezvous_port",
            renamed!(rendezvous_port, direct_port),
            0,
            u16::MAX.into(),
        ),
        (
            "rendezvous_timeout_ms",
            rendezvous_timeout_ms(),
            1,
            MAX_TIMEOUT_MS,
        ),
        (
            "doorbell_coalesce_usecs",
            doorbell_coalesce_usecs(),
            0,
            MAX_DOORBELL_USECS,
        ),
        ("rnr_timeout_ms", rnr_timeout_ms(), 0, MAX_TIMEOUT_MS),
    ];
    for (name, value, low, high) in ranges {
        if !(low..=high).contains(&value) {
            pr_err!("parameter {name}={value} is out of range: {low} to {high}\n");
            return Err(EINVAL);
        }
    }
    Ok(())
}
