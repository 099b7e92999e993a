// SPDX-License-Identifier: GPL-2.0

//! Queue pairs that connect themselves: their owners swap numbers by whatever way they have, and
//! `modify_qp` names the peer. The protocol is that of docs/direct-mode.md.
//!
//! Of the two ends the one with the smaller name connects to the port that all hosts agree on;
//! there a [`door`] lets [`stranger`]s in, who become a [`visitor`] when they have said which
//! queue pair they want. [`hello`] is what is said, and [`link`] what an endpoint does.

mod door;
mod hello;
mod link;
mod stranger;
mod visitor;

use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(crate) use self::door::Doors;
pub(super) use self::link::Direct;
use self::visitor::Visitor;
use super::endpoint::{
    Attachment,
    Endpoint,
    Phase, //
};
use crate::{
    sys::iwcm::Handle,
    verbs::{
        direct::Expects,
        qp_in,
        Qp, //
    },
};

/// Begins to connect a queue pair. Process context; sleeps, but does not wait for the peer.
///
/// `commit` makes the peer known to the queue pair, with the number of the endpoint; when it
/// returns an error nothing has begun.
///
/// # Errors
///
/// `ENODEV` when the device goes. `EADDRINUSE`: somebody else has the port. `EINVAL`: the
/// connection manager works for the queue pair already.
pub(crate) fn begin(qp: &Arc<Qp>, commit: impl FnOnce(Handle) -> Result) -> Result {
    let device = qp.device();
    if device.going() {
        return Err(ENODEV);
    }
    let door = device.doors().enter(device)?;
    let endpoint = Endpoint::new(device)?;
    endpoint.change_and_leave(|_, turn| {
        let begun = || {
            let attachment = Attachment::new(qp.clone(), turn.endpoint)?;
            let direct = KBox::new(Direct::new(attachment), GFP_KERNEL)?;
            commit(turn.endpoint.handle())?;
            Ok(direct)
        };
        begun()
            .map(Phase::Direct)
            .map_err(|error| (error, Phase::Over))
    })?;
    // Those who came too early.
    while let Some(visitor) = door.waiting_for(qp.qpn().get()) {
        let _ = receive(door.net(), visitor);
    }
    Ok(())
}

/// What becomes of a visitor.
enum Welcome {
    /// He was led to his queue pair, or sent away.
    Done,
    /// His queue pair has not been told of its peer yet.
    Later(Visitor),
}

/// Leads a visitor to his queue pair in a network namespace. Process context; sleeps.
fn receive(net: usize, visitor: Visitor) -> Welcome {
    let Some(qp) = qp_in(net, visitor.hello.to) else {
        visitor.refuse();
        return Welcome::Done;
    };
    let handle = match qp.expects() {
        Expects::Endpoint(handle) => handle,
        Expects::Later => return Welcome::Later(visitor),
        Expects::Nobody => {
            visitor.refuse();
            return Welcome::Done;
        }
    };
    let mut visitor = Some(visitor);
    if let Some(endpoint) = qp.device().cm_state().endpoint(handle) {
        // Without a device there is no endpoint any more.
        let _ = endpoint.change_and_leave(|mut phase, turn| {
            if let Phase::Direct(direct) = &mut phase {
                if let Some(visitor) = visitor.take() {
                    direct.visit(turn, visitor);
                }
            }
            Ok(phase)
        });
    }
    if let Some(visitor) = visitor {
        visitor.refuse();
    }
    Welcome::Done
}

/// Whether a queue pair has been told of its peer.
fn is_expecting(net: usize, number: u32) -> bool {
    qp_in(net, number).is_some_and(|qp| qp.expects() != Expects::Later)
}
