// SPDX-License-Identifier: GPL-2.0

//! From the end of the start-up to the end of the stream.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    endpoint::{
        Attachment,
        Next,
        Phase,
        StepContext, //
    },
    listen::Listener, //
};
use crate::{
    stream::{
        Close,
        EndReason,
        Stream, //
    },
    sys::{
        errno::{
            ECONNABORTED,
            ECONNRESET, //
        },
        rdma::iwcm, //
    }, //
};

/// The status of a CLOSE event for the end of a stream.
pub(crate) fn result_of(reason: EndReason) -> Result {
    match reason {
        EndReason::PeerFin | EndReason::LocalClose => Ok(()),
        EndReason::Reset | EndReason::TerminateReceived => Err(ECONNRESET),
        EndReason::TerminateSent(_) => Err(ECONNABORTED),
        EndReason::LlpError(error) => Err(error),
    }
}

/// A connection that was reported to `iw_cm` as established.
pub(crate) struct Established {
    /// Reports the end to `iw_cm`; `None` if the start could not be reported.
    cm: Option<iwcm::Connected>,
    stream: Arc<Stream>,
    /// The queue pair.
    qp: Attachment,
    /// The listener of an accepted connection, until the owner ends it.
    listener: Option<Arc<Listener>>,
    /// The stream is ending.
    closing: bool,
}

impl Established {
    /// Makes the phase. Without `cm` the next step aborts the connection.
    pub(crate) fn new(
        cm: Option<iwcm::Connected>,
        stream: Arc<Stream>,
        qp: Attachment,
        listener: Option<Arc<Listener>>,
    ) -> Self {
        Self {
            cm,
            stream,
            qp,
            listener,
            closing: false,
        }
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Ends a connection that could not be reported to `iw_cm`, with a Terminate.
    pub(crate) fn after_failed_set_up(mut self) -> Self {
        self.closing = true;
        self.stream.close(Close::SetUpFailed);
        self
    }

    /// Waits for the end of the stream.
    #[inline(never)]
    pub(crate) fn step(mut self, ctx: &mut StepContext<'_>) -> Next {
        // A close by the peer does not show that the server shuts down.
        let ended = match ctx.notes.half_closed {
            // The half-close is reported to the owner at once; posted work is still sent.
            true => ctx.notes.ended.or(Some(EndReason::PeerFin)),
            false => ctx.notes.ended,
        };
        let by_us = matches!(ended, None | Some(EndReason::LocalClose));
        if ctx.notes.left && by_us && !self.qp.qp().is_user() {
            if let Some(listener) = self.listener.take() {
                listener.closed_by_owner(self.qp.qp());
            }
        }
        if let Some(reason) = ended {
            // After the event the user may reuse the queue pair.
            drop(self.qp);
            if let Some(cm) = self.cm {
                cm.closed(result_of(reason));
            }
            return Next::Wait(Phase::Over);
        }
        if (ctx.notes.quit || self.cm.is_none()) && !self.closing {
            self.closing = true;
            self.stream.close(Close::Abort);
        }
        Next::Wait(Phase::Established(self))
    }
}
