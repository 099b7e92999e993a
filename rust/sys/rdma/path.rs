// SPDX-License-Identifier: GPL-2.0

//! Address vectors: the path to a peer in `modify_qp`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::sys::bindings;

/// A route by GIDs (`struct ib_global_route`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The local GID.
    pub(crate) local: [u8; 16],
    /// The index of the local GID in the GID table.
    pub(crate) local_index: u8,
    /// The peer's GID.
    pub(crate) remote: [u8; 16],
    /// The IPv6 flow label, 20 bits.
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// An address vector (`struct rdma_ah_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressVector {
    /// The route; `None` if the attributes name the peer by queue pair number alone.
    pub(crate) route: Option<Route>,
    pub(crate) service_level: u8,
    /// The rate limit (`enum ib_rate`).
    pub(crate) static_rate: u8,
}

impl AddressVector {
    /// Copies the C structure.
    ///
    /// # Safety
    ///
    /// `ib_core` has filled in `ah` for `modify_qp`: with a route, `sgid_attr` is null or a live
    /// entry.
    pub(super) unsafe fn from_raw(ah: &bindings::rdma_ah_attr) -> Self {
        let global = u32::from(ah.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0;
        // SAFETY: By this function's contract the pointer is null, or an entry that is kept during
        // the call.
        let local = unsafe { ah.grh.sgid_attr.as_ref() }.filter(|_| global);
        Self {
            route: local.map(|local| Route {
                // SAFETY: All members of the union are plain octets.
                local: unsafe { local.gid.raw },
                local_index: ah.grh.sgid_index,
                // SAFETY: As above.
                remote: unsafe { ah.grh.dgid.raw },
                flow_label: ah.grh.flow_label,
                hop_limit: ah.grh.hop_limit,
                traffic_class: ah.grh.traffic_class,
            }),
            service_level: ah.sl,
            static_rate: ah.static_rate,
        }
    }

    /// Writes the C structure.
    pub(super) fn fill(&self, ah: &mut bindings::rdma_ah_attr) {
        ah.sl = self.service_level;
        ah.static_rate = self.static_rate;
        ah.port_num = 1;
        if let Some(route) = &self.route {
            ah.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
            ah.grh.dgid.raw = route.remote;
            ah.grh.sgid_index = route.local_index;
            ah.grh.flow_label = route.flow_label;
            ah.grh.hop_limit = route.hop_limit;
            ah.grh.traffic_class = route.traffic_class;
        }
    }
}
