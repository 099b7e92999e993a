// SPDX-License-Identifier: GPL-2.0

//! The iWARP connection manager of `ib_core` (`iw_cm`).
//!
//! `iw_cm` calls five functions of the table of verbs to make connections, and receives events
//! about them. It calls BUG() on an event in the wrong state, so the states are types here:
//!
//! ```text
//! ConnectCall --commit--> Connecting --connected--> Connected --closed-->
//!                                    --failed----->
//! AcceptCall  --commit--> Accepting  --connected--> Connected --closed-->
//!                                    --failed----->
//! ListenCall  --commit--> Listening  --request---->  (an AcceptCall for it comes later)
//! ```
//!
//! Each arrow consumes what it starts from, and what is dropped half way sends the events that
//! `iw_cm` waits for. A call that is dropped before its `commit` sends none, as `iw_cm` wants it
//! of a call that returns an error.
//!
//! - [`id`]: a counted reference to what `iw_cm` knows of a connection
//! - [`event`]: the states and the events
//! - [`callbacks`]: the functions for the table of verbs
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
    callbacks::Callbacks,
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

/// The driver's name of a listener or of a connection that `iw_cm` has not decided on.
///
/// `iw_cm` keeps it for the driver; a number, so that one that is too old is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(NonZeroUsize);

impl Handle {
    /// Makes a handle of a number; `None` for 0.
    pub(crate) fn new(number: usize) -> Option<Self> {
        NonZeroUsize::new(number).map(Self)
    }

    /// The handle as `iw_cm` stores it: a pointer that is never followed.
    fn to_provider_data(self) -> *mut c_void {
        core::ptr::without_provenance_mut(self.0.get())
    }

    /// The handle that `iw_cm` has stored; `None` for a null pointer.
    pub(in crate::sys) fn from_provider_data(data: *mut c_void) -> Option<Self> {
        Self::new(data.addr())
    }
}

/// The user's parameters of a connection (`struct iw_cm_conn_param`).
#[derive(Clone, Copy)]
pub(crate) struct ConnParam<'a> {
    /// The number of the queue pair.
    pub(crate) qpn: u32,
    /// The queue pair that a kernel user has given its `rdma_cm_id`, for comparison.
    own_qp: usize,
    /// Read Requests the peer may have outstanding here; as large as the user likes.
    pub(crate) ird: u32,
    /// Read Requests this side wants to have outstanding; as large as the user likes.
    pub(crate) ord: u32,
    /// The user's octets for the peer, 0 to 65535 of them.
    pub(crate) private_data: &'a [u8],
}

impl ConnParam<'_> {
    /// Whether it comes from the kernel user that has made `qp`, by way of `rdma_cm`.
    pub(crate) fn is_of_owner(&self, qp: QpPtr) -> bool {
        qp.as_ptr().addr() == self.own_qp
    }
}

/// The driver's side of `iw_cm`. Process context, may sleep, where nothing else is said.
pub(crate) trait CmOps: Driver {
    /// Begins to connect. When it returns an error the call has not been committed.
    fn connect(device: &Arc<Self::Device>, call: ConnectCall, param: &ConnParam<'_>) -> Result;

    /// Accepts a connection that was announced by [`Listening::request`]. When it returns an
    /// error the call has not been committed, and the connection is gone.
    fn accept(
        device: &Arc<Self::Device>,
        connection: Handle,
        call: AcceptCall,
        param: &ConnParam<'_>,
    ) -> Result;

    /// Refuses a connection that was announced by [`Listening::request`].
    fn reject(device: &Arc<Self::Device>, connection: Handle, private_data: &[u8]) -> Result;

    /// Begins to listen, with a queue of `backlog` connections as TCP understands it.
    fn listen(device: &Arc<Self::Device>, call: ListenCall, backlog: u32) -> Result<Handle>;

    /// Ends listening.
    fn unlisten(device: &Arc<Self::Device>, listener: Handle);

    /// Adds attributes of a connection or a listener, which may have ended, for `rdma resource
    /// show`.
    fn describe_cm_id(device: &Arc<Self::Device>, handle: Handle, attrs: &mut ResAttrs<'_>);

    /// Finds a queue pair by its number, which is not destroyed until `iw_cm` gives it back. Any
    /// context.
    fn find_qp(device: &Arc<Self::Device>, number: u32) -> Option<CoreHold<CoreQp>>;
}
