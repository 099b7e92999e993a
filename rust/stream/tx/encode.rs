// SPDX-License-Identifier: GPL-2.0

//! The encoding of one FPDU of the current message into a burst.
//!
//! Header, payload and CRC are written to the memory that TCP sends from. The payload is copied
//! once, and the CRC covers the copy. Memory that changes during a send therefore breaks no
//! connection.

use iwarp_wire::{
    mpa::{
        fpdu::WriteError,
        MAX_MULPDU, //
    },
    rdmap::terminate::Terminate,
    reads::{
        Inbound,
        Request, //
    },
};

use super::{
    send_queue::Job,
    transmit::Tx, //
};
use crate::{
    stream::{
        ctx::Ctx,
        mr_cache,
        read_queues::ReadQueues, //
    },
    sys::crc::Kernel,
    verbs::{
        cq::WcStatus,
        mr::{
            Access,
            AccessError, //
        }, //
        wq::wqe::Payload,
    }, //
};

/// Octets of an FPDU around its ULPDU: the length field and the CRC. A ULPDU within
/// [`ulpdu_limit`] leaves room for its pad.
const FRAME: usize = 6;

/// Octets of framing and header of the smallest FPDU with payload, for estimates.
const OVERHEAD: u32 = 2 + 18 + 3 + 4;

/// Octets of a marker.
const MARKER: u32 = 4;

/// The result of encoding an FPDU.
pub(in crate::stream) enum Encoded {
    /// The octets of the FPDU; further FPDUs of the message follow.
    Part(u32),
    /// The octets of the last FPDU of the message.
    Last(u32),
    /// No FPDU was encoded: the stream is about to end.
    Failed,
}

impl Encoded {
    /// Octets of the FPDU.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Part(len) | Self::Last(len) => *len as usize,
            Self::Failed => 0,
        }
    }
}

/// The approximate octets of a message with `payload` octets left, as a single FPDU. Never less
/// than an FPDU with one octet of payload has, at any position of a marker.
#[inline]
pub(in crate::stream) fn wanted(payload: u32, markers: bool) -> u32 {
    let marker = match markers {
        true => MARKER,
        false => 0,
    };
    payload.saturating_add(OVERHEAD).saturating_add(marker)
}

/// The longest ULPDU whose FPDU fits into `room` octets and ends on a 32-bit word.
pub(in crate::stream) fn ulpdu_limit(room: usize, markers: bool) -> u16 {
    let words = room & !3;
    let markers = match markers {
        true => words
            .checked_div(512)
            .unwrap_or(0)
            .saturating_add(1)
            .saturating_mul(MARKER as usize),
        false => 0,
    };
    let limit = words.saturating_sub(FRAME).saturating_sub(markers);
    u16::try_from(limit).map_or(MAX_MULPDU, |n| n.min(MAX_MULPDU))
}

/// Copies octets `off..off + dst.len()` of `src`.
fn copy_from(src: &[u8], off: usize, dst: &mut [u8]) -> Result<(), AccessError> {
    let src = off
        .checked_add(dst.len())
        .and_then(|end| src.get(off..end))
        .ok_or(AccessError::Bounds)?;
    dst.copy_from_slice(src);
    Ok(())
}

impl Tx {
    /// The approximate octets of the rest of the current message, as a single FPDU.
    #[inline]
    pub(super) fn next_fpdu_wants(&self, reads: &ReadQueues) -> u32 {
        let tx = self;
        let payload = match &tx.job {
            Some(Job::Message { segmenter, .. }) => segmenter.remaining(),
            Some(Job::Answer) => reads.irq.head().map_or(0, |head| match head.request() {
                Request::Read(read) => read.size.saturating_sub(head.answered()),
                _ => 0,
            }),
            Some(Job::Control(ulpdu)) => ulpdu.len() as u32,
            None => return 0,
        };
        wanted(payload, tx.markers)
    }

    /// Encodes the next FPDU of the current message into `out`.
    #[inline]
    pub(super) fn encode(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        out: &mut [u8],
    ) -> Encoded {
        match &self.job {
            Some(Job::Message { .. }) => self.encode_message(ctx, out),
            Some(Job::Answer) => self.encode_answer(ctx, reads, out),
            Some(Job::Control(_)) => self.encode_control(out),
            None => Encoded::Failed,
        }
    }

    /// Encodes the next FPDU of a Send or Write.
    #[inline]
    fn encode_message(&mut self, ctx: &mut Ctx<'_>, out: &mut [u8]) -> Encoded {
        let tx = self;
        let limit = ulpdu_limit(out.len(), tx.markers);
        let Some(Job::Message {
            segmenter,
            data,
            slot,
        }) = &mut tx.job
        else {
            return Encoded::Failed;
        };
        let Some(step) = segmenter.peek(limit) else {
            return Encoded::Failed;
        };
        let mrs = &mut ctx.mrs;
        let mut from = step.offset;
        let written = tx.writer.write::<Kernel, AccessError>(
            out,
            &step.header,
            usize::from(step.len),
            |dst| {
                match data {
                    Payload::Sgl(list) => mrs.gather(list, from, dst)?,
                    Payload::Inline(inline) => copy_from(inline.as_slice(), from as usize, dst)?,
                }
                from = from.wrapping_add(dst.len() as u32);
                Ok(())
            },
        );
        match written {
            Ok(len) => {
                segmenter.commit(&step);
                match step.last {
                    true => Encoded::Last(len as u32),
                    false => Encoded::Part(len as u32),
                }
            }
            Err(error) => {
                let slot = *slot;
                ctx.slot_failed(
                    slot,
                    match error {
                        WriteError::Payload(_) => WcStatus::LocProt,
                        WriteError::TooLong | WriteError::NoRoom => WcStatus::General,
                    },
                );
                tx.job = None;
                Encoded::Failed
            }
        }
    }

    /// Encodes the next FPDU of a Read Response.
    #[inline]
    fn encode_answer(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        out: &mut [u8],
    ) -> Encoded {
        let tx = self;
        let limit = ulpdu_limit(out.len(), tx.markers);
        let irq = &mut reads.irq;
        let (Some(answer), Some(head)) = (irq.next_step(limit), irq.head()) else {
            return Encoded::Failed;
        };
        let (msn, Request::Read(request)) = (head.msn(), head.request()) else {
            return Encoded::Failed;
        };
        let mrs = &mut ctx.mrs;
        let mut refused = None;
        if answer.first && request.size != 0 {
            let need = Access::REMOTE_READ;
            refused = match ctx.queues.grants(need) {
                true => mrs
                    .remote(request.source, request.source_to.get(), request.size, need)
                    .err(),
                false => Some(AccessError::Rights),
            };
        }
        let mut from = answer.from.get();
        let written = match refused {
            Some(error) => Err(WriteError::Payload(error)),
            None => tx.writer.write::<Kernel, AccessError>(
                out,
                &answer.header,
                usize::from(answer.len),
                |dst| {
                    let len = dst.len() as u32;
                    mrs.remote(answer.source, from, len, Access::REMOTE_READ)?
                        .read_at(from, dst)?;
                    from = from.wrapping_add(u64::from(len));
                    Ok(())
                },
            ),
        };
        match written {
            Ok(len) => {
                irq.commit(&answer);
                match answer.last {
                    true => Encoded::Last(len as u32),
                    false => Encoded::Part(len as u32),
                }
            }
            // No wrong octet was sent: the Terminate replaces the response.
            Err(WriteError::Payload(error)) => {
                let reason = mr_cache::to_wire(error).for_read();
                let left = irq.head().and_then(Inbound::remaining).unwrap_or(request);
                ctx.fail(Terminate::for_read(reason, msn, &left));
                Encoded::Failed
            }
            Err(WriteError::TooLong | WriteError::NoRoom) => {
                ctx.fail(Terminate::bare(
                    iwarp_wire::TerminateReason::RdmapCatastrophic,
                ));
                Encoded::Failed
            }
        }
    }

    /// Encodes the FPDU of a message without payload.
    fn encode_control(&mut self, out: &mut [u8]) -> Encoded {
        let tx = self;
        let Some(Job::Control(ulpdu)) = &tx.job else {
            return Encoded::Failed;
        };
        match tx
            .writer
            .write::<Kernel, AccessError>(out, ulpdu, 0, |_| Ok(()))
        {
            Ok(len) => Encoded::Last(len as u32),
            Err(_) => {
                tx.job = None;
                Encoded::Failed
            }
        }
    }
}
