// SPDX-License-Identifier: GPL-2.0

//! Callbacks of an endpoint: from its socket, its queue pair, and its streams.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

use super::Endpoint;
use crate::{
    qp::{
        Attached,
        Leaving,
        Qp, //
    },
    stream::{
        StreamEvent,
        StreamUser, //
    },
    sys::net::socket::{
        CallbackSock,
        Handler, //
    }, //
};

impl Handler for Endpoint {
    fn data_ready(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }

    fn write_space(this: ArcBorrow<'_, Self>, mut socket: CallbackSock<'_>) {
        if socket.stream_writable() {
            socket.clear_nospace();
            Arc::from(this).look();
        }
    }

    fn state_change(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }

    fn error_report(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }
}

/// The callbacks of a queue pair or a stream into an endpoint; counted by the endpoint.
struct EndpointCallbacks {
    endpoint: Arc<Endpoint>,
    /// Whether events of the stream are noted.
    tells: bool,
}

impl EndpointCallbacks {
    /// Makes the callbacks, and counts them in the endpoint.
    fn new(endpoint: &Arc<Endpoint>, tells: bool) -> Result<Arc<Self>> {
        let callbacks = Self {
            endpoint: endpoint.clone(),
            tells,
        };
        {
            let mut notes = endpoint.notes.lock();
            notes.refs = notes.refs.saturating_add(1);
        }
        // If the allocation fails, `drop` uncounts the callbacks.
        Ok(Arc::new(callbacks, GFP_KERNEL)?)
    }
}

impl Attached for EndpointCallbacks {
    fn qp_leaving(&self, _how: Leaving) {
        // Without a stream there is no graceful end.
        self.endpoint.abort();
    }

    fn qp_news(&self) {
        self.endpoint.look();
    }

    fn owner_closes(&self) {
        self.endpoint.note(|notes| notes.left = true);
    }
}

impl Drop for EndpointCallbacks {
    fn drop(&mut self) {
        self.endpoint
            .note(|notes| notes.refs = notes.refs.saturating_sub(1));
    }
}

impl StreamUser for EndpointCallbacks {
    fn stream_event(&self, event: StreamEvent) {
        if !self.tells {
            return;
        }
        self.endpoint.note(|notes| match event {
            StreamEvent::Ready => notes.ready = true,
            StreamEvent::HalfClosed => notes.half_closed = true,
            StreamEvent::Ended(reason) => notes.ended = Some(reason),
        });
    }
}

/// The attachment of an endpoint to a queue pair, whose destruction waits until it is dropped.
pub(crate) struct Attachment {
    /// The queue pair.
    qp: Arc<Qp>,
    /// The callbacks of the queue pair.
    callbacks: Arc<EndpointCallbacks>,
}

impl Attachment {
    /// Attaches to a queue pair; `EINVAL` if it can not be connected.
    pub(crate) fn new(qp: Arc<Qp>, endpoint: &Arc<Endpoint>) -> Result<Self> {
        let callbacks = EndpointCallbacks::new(endpoint, true)?;
        qp.attach(callbacks.clone())?;
        Ok(Self { qp, callbacks })
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// The callbacks for the receiving end's stream of a queue pair that is connected to itself.
    /// They note no events, since the other stream reports those of the connection.
    pub(crate) fn mirror_user(&self) -> Result<Arc<dyn StreamUser>> {
        Ok(EndpointCallbacks::new(&self.callbacks.endpoint, false)?)
    }

    /// The callbacks of a stream.
    pub(crate) fn user(&self) -> Arc<dyn StreamUser> {
        self.callbacks.clone()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.qp.detach();
    }
}
