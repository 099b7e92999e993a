// SPDX-License-Identifier: GPL-2.0

//! Bindings to `iw_cm`, the iWARP connection manager of the kernel.
//!
//! `iw_cm` calls five callbacks of the verbs table to establish connections, and receives events
//! about them. It calls `BUG()` on an event in the wrong state. So each state is a type of its own
//! here:
//!
//! ```text
//! ConnectCall --commit--> Connecting --connected--> Connected --closed-->
//!                                    --failed----->
//! AcceptCall  --commit--> Accepting  --connected--> Connected --closed-->
//!                                    --failed----->
//! ListenCall  --commit--> Listening  --request---->  (an AcceptCall for it comes later)
//! ```
//!
//! Each arrow is a function; all but `request` consume the value at the left. A value that is
//! dropped without such a call sends the events that `iw_cm` waits for. A call that is dropped
//! before `commit` sends no event: `iw_cm` expects none when its callback returns an error. After
//! `commit` the callback returns success, whatever the driver returns.
//!
//! - [`id`]: counted references to `struct iw_cm_id`
//! - [`event`]: the states, and the events between them
//! - [`callbacks`]: the C functions for the verbs table
//!
//! C header: [`include/rdma/iw_cm.h`](srctree/include/rdma/iw_cm.h)

mod callbacks;
mod event;
mod id;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use core::num::NonZeroUsize;

use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(crate) use self::{
    callbacks::IwCmCallbacks,
    event::{
        AcceptCall,
        Accepting,
        ConnectCall,
        Connected,
        Connecting,
        Depths,
        ListenCall,
        Listening,
        Peers,
        PrivateData, //
    },
};
use crate::sys::rdma::{
    core_ref::CoreHold,
    driver::Driver,
    event::CoreQp,
    res::ResAttrs,
    wr::QpPtr, //
};

/// The driver's identifier of a listener or a connection.
///
/// `iw_cm` stores it for the driver (`provider_data`). It is a number and not a pointer, so the
/// driver can detect an outdated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(NonZeroUsize);

impl Handle {
    /// Makes a handle from a number; `None` for 0.
    pub(crate) fn new(number: usize) -> Option<Self> {
        NonZeroUsize::new(number).map(Self)
    }

    /// The handle as a pointer for `provider_data`, which no code dereferences.
    fn to_provider_data(self) -> *mut c_void {
        core::ptr::without_provenance_mut(self.0.get())
    }

    /// The handle in `provider_data`; `None` for a null pointer.
    pub(in crate::sys) fn from_provider_data(data: *mut c_void) -> Option<Self> {
        Self::new(data.addr())
    }
}

/// The user's parameters of a connection (`struct iw_cm_conn_param`).
#[derive(Clone, Copy)]
pub(crate) struct ConnParam<'a> {
    /// The queue pair number.
    pub(crate) qpn: u32,
    /// The address of the queue pair that a kernel user has bound to its `rdma_cm_id`, only for
    /// comparison; 0 if none.
    own_qp: usize,
    /// The requested number of outstanding RDMA Reads as responder (IRD), any value.
    pub(crate) ird: u32,
    /// The requested number of outstanding RDMA Reads as initiator (ORD), any value.
    pub(crate) ord: u32,
    /// Private data for the peer, 0 to 65535 octets.
    pub(crate) private_data: &'a [u8],
}

impl ConnParam<'_> {
    /// Whether the kernel user that created `qp` has passed the parameters through `rdma_cm`.
    pub(crate) fn is_of_owner(&self, qp: QpPtr) -> bool {
        qp.as_ptr().addr() == self.own_qp
    }
}

/// The callbacks of `iw_cm`. Functions run in process context and may sleep, unless their comments
/// say otherwise.
pub(crate) trait CmOps: Driver {
    /// Begins to connect. After a commitment the result has no effect.
    fn connect(device: &Arc<Self::Device>, call: ConnectCall<'_>, param: &ConnParam<'_>) -> Result;

    /// Accepts a connection that [`Listening::request`] has announced. On an error the connection
    /// is closed. After a commitment the result has no effect.
    fn accept(
        device: &Arc<Self::Device>,
        connection: Handle,
        call: AcceptCall<'_>,
        param: &ConnParam<'_>,
    ) -> Result;

    /// Rejects a connection that [`Listening::request`] has announced, with private data for the
    /// peer.
    fn reject(device: &Arc<Self::Device>, connection: Handle, private_data: &[u8]) -> Result;

    /// Begins to listen, with a TCP backlog of `backlog` connections.
    fn listen(device: &Arc<Self::Device>, call: ListenCall, backlog: u32) -> Result<Handle>;

    /// Stops listening.
    fn unlisten(device: &Arc<Self::Device>, listener: Handle);

    /// Adds the driver attributes of a connection or a listener, which may have ended, for `rdma
    /// resource show cm_id`.
    fn describe_cm_id(device: &Arc<Self::Device>, handle: Handle, attrs: &mut ResAttrs<'_>);

    /// Looks up a queue pair by number, and takes a reference. The destruction of the queue pair
    /// waits until `iw_cm` drops the reference.
    ///
    /// Process context, under a spin lock of `iw_cm` with interrupts disabled; must not sleep.
    fn find_qp(device: &Arc<Self::Device>, number: u32) -> Option<CoreHold<CoreQp>>;
}
