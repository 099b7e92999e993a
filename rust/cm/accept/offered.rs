// SPDX-License-Identifier: GPL-2.0

//! Connections that wait for a decision of `iw_cm`.

use iwarp_wire::mpa::startup::Frame;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    refuse,
    Agreement, //
    Replying,
};
use crate::{
    cm::{
        device::CmDevice,
        endpoint::{
            Attachment,
            Next,
            Phase,
            StepContext, //
        },
        listen::Listener,
        mpa_frame::{
            has_more,
            FrameWriter, //
        },
        policy, //
    },
    sys::{
        errno::ECONNRESET,
        net::{
            socket::{
                OwnerSock,
                Socket, //
            },
            Family, //
        },
        rdma::iwcm::{
            AcceptCall,
            ConnParam,
            Peers, //
        },
    }, //
};

/// A connection that waits for a decision of `iw_cm`.
pub(crate) struct Offered {
    /// The listener that accepted the connection.
    pub(super) listener: Arc<Listener>,
    /// The peer's Request.
    pub(super) request: Frame<'static>,
    /// The addresses of the connection.
    pub(super) peers: Peers,
    pub(super) socket: Socket,
}

impl Offered {
    /// Checks whether the peer is still connected.
    #[inline(never)]
    pub(crate) fn step(self, ctx: &mut StepContext<'_>) -> Next {
        if ctx.notes.quit || has_more(&self.socket) || ctx.timer.is_over() {
            return Next::Wait(Phase::Over);
        }
        Next::Wait(Phase::Offered(self))
    }

    /// Assigns the connection to the current process: its security label, control group and memory
    /// cgroup. No effect in a kernel thread.
    ///
    /// The listener's attributes may be those of another process: `rdma_cm` makes the listeners of a
    /// wildcard address on a new device in the context of `rdma link add`.
    fn assign_to_caller(&self, device: &CmDevice) -> Result {
        let net = device.netns().ok_or(ENODEV)?;
        match OwnerSock::of_caller(&net, Family::of(&self.peers.local))? {
            Some(owner) => self.socket.inherit(&owner),
            None => Ok(()),
        }
    }

    /// Sends a Reply that rejects the connection on behalf of the current process, with
    /// `private_data`. If the process may have no socket, the Reply has no private data, and the
    /// error returns.
    pub(super) fn reject(self, device: &CmDevice, private_data: &[u8]) -> Result {
        match self.assign_to_caller(device) {
            Ok(()) => self.refuse(private_data),
            Err(error) => {
                let _ = self.refuse(&[]);
                Err(error)
            }
        }
    }

    /// Sends a Reply that refuses the connection, with `private_data`.
    fn refuse(self, private_data: &[u8]) -> Result {
        refuse(&self.socket, &self.request, private_data)
    }

    /// Accepts the connection: sends the Reply, or as much as TCP accepts.
    ///
    /// Before an error returns, the peer is sent a refusing Reply, a Terminate or a reset, unless
    /// the connection had ended.
    pub(super) fn accept(
        self,
        ctx: &mut StepContext<'_>,
        call: AcceptCall<'_>,
        param: &ConnParam<'_>,
    ) -> Result<Replying> {
        if ctx.notes.quit || has_more(&self.socket) {
            return Err(ECONNRESET);
        }
        let policy = policy(ctx.device.settings().crc(), param.ird, param.ord);
        let (reply, agreed) = policy.accept(&self.request, param.private_data);
        let prepared = ctx
            .device
            .qp_of(param)
            .ok_or(EINVAL)
            .and_then(|qp| Attachment::new(qp, ctx.endpoint))
            .and_then(|qp| Ok((qp, FrameWriter::new(&reply)?)))
            // A work item has accepted the connection from TCP. From now on the connection belongs
            // to the process, and its memory is charged to it.
            .and_then(|prepared| self.assign_to_caller(ctx.device).map(|()| prepared));
        let (qp, frame) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = self.refuse(&[]);
                return Err(error);
            }
        };
        let offer = Agreement {
            agreed,
            waits_for_rtr: reply.enhanced.is_some_and(|word| word.peer_to_peer),
            enhanced: reply.enhanced.is_some(),
        };
        let stage = offer.reply(ctx, &qp, self.socket, frame)?;
        Ok(Replying {
            listener: self.listener,
            peers: self.peers,
            cm: call.commit(self.peers),
            qp,
            offer,
            stage,
        })
    }
}
