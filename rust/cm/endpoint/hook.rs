// SPDX-License-Identifier: GPL-2.0

//! An endpoint as others know it: its socket, its queue pair, and its streams.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

use super::Endpoint;
use crate::{
    stream::{
        Owner,
        StreamEvent, //
    },
    sys::socket::{
        CallbackSock,
        Handler, //
    },
    verbs::{
        Attached,
        Leaving,
        Qp, //
    },
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

/// An endpoint as its queue pair and its stream know it.
struct Hook {
    /// The endpoint.
    endpoint: Arc<Endpoint>,
    /// It is of interest when the stream begins and ends.
    tells: bool,
}

impl Hook {
    /// Makes one.
    fn new(endpoint: &Arc<Endpoint>, tells: bool) -> Result<Arc<Self>> {
        let hook = Self {
            endpoint: endpoint.clone(),
            tells,
        };
        {
            let mut notes = endpoint.notes.lock();
            notes.hooks = notes.hooks.saturating_add(1);
        }
        // Should this fail, dropping it counts it off.
        Ok(Arc::new(hook, GFP_KERNEL)?)
    }
}

impl Attached for Hook {
    fn qp_leaving(&self, _how: Leaving) {
        // Without a stream there is nothing to be ended gracefully.
        self.endpoint.abort();
    }

    fn qp_news(&self) {
        self.endpoint.look();
    }

    fn owner_closes(&self) {
        self.endpoint.note(|notes| notes.left = true);
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.endpoint
            .note(|notes| notes.hooks = notes.hooks.saturating_sub(1));
    }
}

impl Owner for Hook {
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

/// The right to work for a queue pair, which does not go while there is one.
pub(in crate::cm) struct Attachment {
    /// The queue pair.
    qp: Arc<Qp>,
    /// The endpoint, as the queue pair knows it.
    hook: Arc<Hook>,
}

impl Attachment {
    /// Begins to work for a queue pair; `EINVAL` when it is not fit to be connected.
    pub(in crate::cm) fn new(qp: Arc<Qp>, endpoint: &Arc<Endpoint>) -> Result<Self> {
        let hook = Hook::new(endpoint, true)?;
        qp.attach(hook.clone())?;
        Ok(Self { qp, hook })
    }

    /// The queue pair.
    pub(in crate::cm) fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// The endpoint, as the stream of the receiving end knows it where a queue pair is connected to
    /// itself: its other stream tells of the connection.
    pub(in crate::cm) fn mirror_owner(&self) -> Result<Arc<dyn Owner>> {
        Ok(Hook::new(&self.hook.endpoint, false)?)
    }

    /// The endpoint, as a stream knows it.
    pub(in crate::cm) fn owner(&self) -> Arc<dyn Owner> {
        self.hook.clone()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.qp.detach();
    }
}
