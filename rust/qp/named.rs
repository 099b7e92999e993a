// SPDX-License-Identifier: GPL-2.0

//! Checks of the attributes by which the owner of a queue pair names a peer.

use kernel::prelude::*;

use crate::{
    sys::rdma::attr::{
        Change,
        IbState,
        PeerAttributes, //
    },
    verbs::Qpn, //
};

/// The largest packet sequence number.
const MAX_PSN: u32 = 0x00ff_ffff;

/// The largest code of a time (`timeout`, `min_rnr_timer`).
const MAX_TIME_CODE: u8 = 31;

/// The largest number of retries.
const MAX_RETRIES: u8 = 7;

/// The largest `enum ib_mtu`.
const MAX_MTU: u32 = 5;

/// A peer that the owner has named, with all required attributes.
pub(super) struct CheckedPeer {
    /// The attributes that `query_qp` returns.
    pub(super) told: PeerAttributes,
}

impl Change {
    /// Whether the owner names a peer.
    pub(super) fn names_peer(&self) -> bool {
        self.state == Some(IbState::Rtr)
            && (self.path.is_some() || self.dest_qpn.is_some() || self.rq_psn.is_some())
    }

    /// Whether all values are in InfiniBand's ranges.
    pub(super) fn is_in_range(&self) -> bool {
        let psn = |psn: Option<u32>| psn.is_none_or(|psn| psn <= MAX_PSN);
        let code = |code: Option<u8>| code.is_none_or(|code| code <= MAX_TIME_CODE);
        let retries = |retries: Option<u8>| retries.is_none_or(|n| n <= MAX_RETRIES);
        psn(self.rq_psn)
            && psn(self.sq_psn)
            && code(self.timeout)
            && code(self.min_rnr_timer)
            && retries(self.retry_count)
            && retries(self.rnr_retry)
            && self.dest_qpn.is_none_or(|qpn| qpn <= Qpn::MAX)
            && self.path_mtu.is_none_or(|mtu| (1..=MAX_MTU).contains(&mtu))
    }

    /// The peer that the change names; `EINVAL` if a required attribute is missing.
    pub(super) fn peer(&self) -> Result<CheckedPeer> {
        let (Some(path), Some(dest_qpn), Some(rq_psn)) = (self.path, self.dest_qpn, self.rq_psn)
        else {
            return Err(EINVAL);
        };
        Ok(CheckedPeer {
            told: PeerAttributes {
                path,
                dest_qpn,
                rq_psn,
                sq_psn: 0,
                path_mtu: self.path_mtu.ok_or(EINVAL)?,
                timeout: 0,
                retry_count: 0,
                rnr_retry: 0,
                min_rnr_timer: self.min_rnr_timer.ok_or(EINVAL)?,
            },
        })
    }
}
