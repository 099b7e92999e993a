// SPDX-License-Identifier: GPL-2.0

//! The module's parameters as typed values (README.md, parameters).
//!
//! Kernel parameters are integers. [`check`] fails the load of the module with a value out of
//! range, so the getters need no error path.

use core::borrow::Borrow;

use kernel::prelude::*;

use crate::module_parameters;

/// The maximum of a time limit, in milliseconds: one hour.
const MAX_TIMEOUT_MS: u32 = 3_600_000;

/// The maximum of the doorbell delay, in microseconds.
pub(crate) const MAX_DOORBELL_USECS: u32 = 1_000;

/// The MPA revision of a Request of this end (RFC 5044, RFC 6581).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MpaRevision {
    /// RFC 5044.
    One,
    /// RFC 6581: enhanced connection set-up.
    Two,
}

/// Reads a parameter. `value()` returns a reference in Linux 7.2, and a copy in 7.3.
macro_rules! value {
    ($name:ident) => {{
        let value: u32 = *Borrow::borrow(&module_parameters::$name.value());
        value
    }};
}

/// The default of a parameter with an old name: the parameter was not set. No value in range
/// equals it.
const NOT_GIVEN: u32 = u32::MAX;

/// Reads a parameter that may also be set under its old name. A value under the old name takes
/// precedence.
macro_rules! renamed {
    ($name:ident, $old:ident) => {
        match value!($old) {
            NOT_GIVEN => value!($name),
            old => old,
        }
    };
}

/// Whether this end requests a CRC in every FPDU.
pub(crate) fn crc() -> bool {
    value!(crc) != 0
}

/// Whether this end requests MPA markers in the FPDUs of the peer.
pub(crate) fn markers() -> bool {
    value!(markers) != 0
}

/// The MPA revision of Requests of this end.
pub(crate) fn mpa_revision() -> MpaRevision {
    match value!(mpa_rev) {
        1 => MpaRevision::One,
        _ => MpaRevision::Two,
    }
}

/// Whether to connect again with MPA revision 1 to a peer without support for revision 2.
pub(crate) fn rev1_fallback() -> bool {
    value!(rev1_fallback) != 0
}

/// Whether Requests of this end propose peer-to-peer mode (RFC 6581).
pub(crate) fn peer_to_peer() -> bool {
    value!(peer_to_peer) != 0
}

/// The time limit of the TCP connection set-up, in milliseconds: 1 to [`MAX_TIMEOUT_MS`].
pub(crate) fn connect_timeout_ms() -> u32 {
    value!(connect_timeout_ms)
}

/// The time limit for the peer's MPA Request, in milliseconds: 1 to [`MAX_TIMEOUT_MS`].
pub(crate) fn mpa_request_timeout_ms() -> u32 {
    value!(mpa_request_timeout_ms)
}

/// The time limit for the peer's MPA Reply, in milliseconds: 1 to [`MAX_TIMEOUT_MS`].
pub(crate) fn mpa_reply_timeout_ms() -> u32 {
    value!(mpa_reply_timeout_ms)
}

/// The TCP port of the rendezvous, on which queue pairs connect without rdma_cm, 1 to 65535; 0:
/// none.
pub(crate) fn rendezvous_port() -> u16 {
    u16::try_from(renamed!(rendezvous_port, direct_port)).unwrap_or(0)
}

/// The minimum time that work requests wait for the connection of a rendezvous, in milliseconds: 1
/// to [`MAX_TIMEOUT_MS`]. The attributes of the queue pair may extend it.
pub(crate) fn rendezvous_timeout_ms() -> u32 {
    renamed!(rendezvous_timeout_ms, direct_timeout_ms)
}

/// The maximum delay of a doorbell that follows other doorbells in quick succession, in
/// microseconds: 0 (none) to [`MAX_DOORBELL_USECS`].
#[inline]
pub(crate) fn doorbell_coalesce_usecs() -> u32 {
    renamed!(doorbell_coalesce_usecs, gather_us)
}

/// The time that a Send waits for a receive if the attributes of the queue pair do not set it. In
/// milliseconds: 0 (not at all) to [`MAX_TIMEOUT_MS`].
pub(crate) fn rnr_timeout_ms() -> u32 {
    value!(rnr_timeout_ms)
}

/// Checks that every parameter is in range. Called once, before any other use of a parameter.
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
