// SPDX-License-Identifier: GPL-2.0

//! A pending connection: accepted, and not dispatched to a queue pair yet.
//!
//! The pending set of the listener owns the connection, whose mutex protects its state. A work
//! item reads the Request.

use iwarp_wire::mpa::startup::FrameKind;
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use super::{
    listener::RendezvousListener,
    request::ConnRequest,
    Dispatch, //
};
use crate::{
    cm::mpa_frame::FrameReader,
    sys::{
        net::socket::{
            CallbackSock,
            Handler,
            UnheldSocket, //
        },
        sync::work, //
    }, //
};

/// The state of a pending connection.
///
/// | state | event | next |
/// | --- | --- | --- |
/// | Reading | Request | dispatched; Closed, or Parked if the queue pair has no peer |
/// | Reading | anything else, time-out, evicted | Closed |
/// | Parked | the owner of the queue pair names a peer | dispatched; Closed |
/// | Parked | peer closes, time-out, evicted | Closed |
enum ConnState {
    /// The Request is being received.
    Reading(FrameReader, UnheldSocket),
    /// The request waits until its queue pair has a peer.
    Parked(ConnRequest),
    /// Dispatched, or reset.
    Closed,
}

/// A pending connection.
#[pin_data]
pub(super) struct PendingConn {
    listener: Arc<RendezvousListener>,
    #[pin]
    state: Mutex<ConnState>,
    /// Handles the socket.
    #[pin]
    look: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for PendingConn { self.look }
}

impl WorkItem for PendingConn {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.handle_input();
    }
}

impl PendingConn {
    /// Makes a pending connection of an accepted socket. Process context; sleeps.
    pub(super) fn new(
        listener: &Arc<RendezvousListener>,
        socket: UnheldSocket,
    ) -> Result<Arc<Self>> {
        let reader = FrameReader::new(FrameKind::Request)?;
        let conn = Arc::pin_init(
            pin_init!(Self {
                listener: listener.clone(),
                state <- new_mutex!(ConnState::Closed, "rsiw_rendezvous_pending"),
                look <- new_work!("rsiw_rendezvous_pending_look"),
            }),
            GFP_KERNEL,
        )?;
        socket.install(conn.clone());
        *conn.state.lock() = ConnState::Reading(reader, socket);
        Ok(conn)
    }

    /// Queues the work item for the socket. Any context.
    pub(super) fn look(self: &Arc<Self>) {
        let _ = work::process().enqueue(self.clone());
    }

    /// Resets the connection without an answer. Process context; sleeps.
    pub(super) fn reset(&self) {
        let state = core::mem::replace(&mut *self.state.lock(), ConnState::Closed);
        // Closes the socket.
        drop(state);
    }

    /// Parks a request. Called by the listener, under its lock.
    pub(super) fn park(&self, request: ConnRequest) {
        *self.state.lock() = ConnState::Parked(request);
    }

    /// Takes the parked request if it is for queue pair `number`. Called by the listener, under its
    /// lock.
    pub(super) fn unpark(&self, number: u32) -> Option<ConnRequest> {
        let mut state = self.state.lock();
        match core::mem::replace(&mut *state, ConnState::Closed) {
            ConnState::Parked(request) if request.hello.to == number => Some(request),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Reads the socket, and dispatches the Request when it is complete.
    fn handle_input(self: &Arc<Self>) {
        let request = {
            let mut state = self.state.lock();
            match core::mem::replace(&mut *state, ConnState::Closed) {
                ConnState::Reading(mut reader, socket) => match reader.read(&socket) {
                    Ok(None) => {
                        *state = ConnState::Reading(reader, socket);
                        return;
                    }
                    // From here on the socket holds its namespace, since a queue pair may take it.
                    Ok(Some(frame)) => match socket.hold() {
                        Ok(socket) => ConnRequest::new(socket, &frame),
                        Err(_) => None,
                    },
                    // A peer that sends no Request receives no Reply.
                    Err(_) => None,
                },
                ConnState::Parked(request) if !request.is_closed() => {
                    *state = ConnState::Parked(request);
                    return;
                }
                ConnState::Parked(_) => None,
                ConnState::Closed => return,
            }
        };
        match request {
            Some(request) => self.dispatch(request),
            None => self.listener.remove(self),
        }
    }

    /// Dispatches a request, or parks it.
    #[inline(never)]
    fn dispatch(self: &Arc<Self>, request: ConnRequest) {
        let number = request.hello.to;
        match super::dispatch(&self.listener, request) {
            Dispatch::Done => {}
            Dispatch::Later(request) => {
                if self.listener.park(self, request).is_ok() {
                    // The owner may have named the peer meanwhile, and searched for parked
                    // requests before this one was parked.
                    if super::is_expecting(&self.listener, number) {
                        if let Some(request) = self.listener.take_parked(number) {
                            let _ = super::dispatch(&self.listener, request);
                        }
                    }
                    return;
                }
            }
        }
        self.listener.remove(self);
    }
}

impl Handler for PendingConn {
    fn data_ready(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }

    fn write_space(_this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {}

    fn state_change(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }

    fn error_report(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }
}
