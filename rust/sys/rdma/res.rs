// SPDX-License-Identifier: GPL-2.0

//! Driver attributes of objects, which `rdma resource show -dd` prints.
//!
//! C header: [`include/rdma/restrack.h`](srctree/include/rdma/restrack.h)

use core::marker::PhantomData;

use kernel::{
    error::to_result,
    prelude::*,
    str::CStr, //
};

use crate::sys::{
    bindings,
    rdma::{
        driver::Driver,
        iwcm::{
            CmOps,
            Handle, //
        }, //
        objects::{
            DeviceObject,
            MrObject,
            QpObject, //
        },
        vtable::Vtable,
    }, //
};

/// Digits of a hexadecimal number.
const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Driver attributes that are being written to a netlink message.
///
/// # Invariants
///
/// `msg` is the netlink message of the current call.
pub(crate) struct ResAttrs<'a> {
    /// The message.
    msg: *mut bindings::sk_buff,
    /// An attribute did not fit.
    full: bool,
    _call: PhantomData<&'a mut ()>,
}

impl ResAttrs<'_> {
    /// Adds the attributes of `write` to `msg`; none if they do not all fit.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: the attributes do not fit; `ib_core` starts another message.
    ///
    /// # Safety
    ///
    /// `msg` is a netlink message of `ib_core`, which only this call uses.
    unsafe fn write(
        msg: *mut bindings::sk_buff,
        write: impl FnOnce(&mut ResAttrs<'_>),
    ) -> Result<c_int> {
        // SAFETY: By this function's contract `msg` is a netlink message that only this call uses.
        let nest = unsafe { bindings::rsiw_res_begin(msg) };
        if nest.is_null() {
            return Err(EMSGSIZE);
        }
        // INVARIANT: By this function's contract `msg` is a message that only this call uses.
        let mut attrs = ResAttrs {
            msg,
            full: false,
            _call: PhantomData,
        };
        write(&mut attrs);
        let whole = !attrs.full;
        // SAFETY: As above; `rsiw_res_begin` has opened the nest.
        unsafe { bindings::rsiw_res_end(msg, nest, whole) };
        match whole {
            true => Ok(0),
            false => Err(EMSGSIZE),
        }
    }

    /// Records whether an attribute did not fit.
    fn done(&mut self, result: c_int) {
        self.full |= to_result(result).is_err();
    }

    /// Adds a number of 32 bits.
    pub(crate) fn number(&mut self, name: &CStr, value: u32) {
        // SAFETY: By the type invariant; `ib_core` copies the name.
        self.done(unsafe { bindings::rdma_nl_put_driver_u32(self.msg, name.as_char_ptr(), value) });
    }

    /// Adds a number of 64 bits.
    pub(crate) fn long(&mut self, name: &CStr, value: u64) {
        // SAFETY: By the type invariant; `ib_core` copies the name.
        self.done(unsafe { bindings::rdma_nl_put_driver_u64(self.msg, name.as_char_ptr(), value) });
    }

    /// Adds a hexadecimal number as text. In JSON, tools print hexadecimal attributes signed or
    /// truncated.
    pub(crate) fn hex(&mut self, name: &CStr, value: u64) {
        let mut text = [0; 19];
        let mut digits = value;
        for octet in text.iter_mut().take(18).rev() {
            *octet = HEX_DIGITS
                .get((digits & 15) as usize)
                .copied()
                .unwrap_or(b'0');
            digits >>= 4;
        }
        // Strips leading zeros.
        let zeros = ((value | 1).leading_zeros() / 4) as usize;
        if let Some([zero, x]) = text
            .get_mut(zeros..)
            .and_then(|text| text.first_chunk_mut())
        {
            (*zero, *x) = (b'0', b'x');
        }
        if let Some(Ok(text)) = text.get(zeros..).map(CStr::from_bytes_with_nul) {
            self.text(name, text);
        }
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, name: &CStr, value: &CStr) {
        // SAFETY: By the type invariant; `ib_core` copies the name and the text.
        self.done(unsafe {
            bindings::rdma_nl_put_driver_string(self.msg, name.as_char_ptr(), value.as_char_ptr())
        });
    }

    /// Adds `yes` or `no`.
    pub(crate) fn flag(&mut self, name: &CStr, value: bool) {
        self.text(name, if value { c"yes" } else { c"no" });
    }
}

impl<D: Driver + CmOps> Vtable<D> {
    /// `fill_res_qp_entry`: adds the driver attributes of a queue pair. Process context.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with its message and a queue pair of this driver, and keeps both during
    /// the call.
    pub(super) unsafe extern "C" fn fill_res_qp_entry(
        msg: *mut bindings::sk_buff,
        qp: *mut bindings::ib_qp,
    ) -> c_int {
        kernel::error::from_result(|| {
            // SAFETY: By this function's contract `qp` stays valid during the call.
            let inner = unsafe { QpObject::<D>::get(qp)? };
            // SAFETY: By this function's contract only this call uses `msg`.
            unsafe { ResAttrs::write(msg, |attrs| D::describe_qp(inner, attrs)) }
        })
    }

    /// `fill_res_mr_entry`: adds the driver attributes of a memory region. Process context.
    ///
    /// # Safety
    ///
    /// As for [`fill_res_qp_entry`](Self::fill_res_qp_entry), with a region.
    pub(super) unsafe extern "C" fn fill_res_mr_entry(
        msg: *mut bindings::sk_buff,
        mr: *mut bindings::ib_mr,
    ) -> c_int {
        kernel::error::from_result(|| {
            // SAFETY: By this function's contract `mr` stays valid during the call.
            let inner = unsafe { MrObject::<D>::get(mr)? };
            // SAFETY: By this function's contract only this call uses `msg`.
            unsafe { ResAttrs::write(msg, |attrs| D::describe_mr(inner, attrs)) }
        })
    }

    /// `fill_res_cm_id_entry`: adds the driver attributes of an identifier of `rdma_cm`. Process
    /// context.
    ///
    /// # Safety
    ///
    /// As for [`fill_res_qp_entry`](Self::fill_res_qp_entry), with an identifier bound to a device
    /// of this driver.
    pub(super) unsafe extern "C" fn fill_res_cm_id_entry(
        msg: *mut bindings::sk_buff,
        id: *mut bindings::rdma_cm_id,
    ) -> c_int {
        kernel::error::from_result(|| {
            // SAFETY: By this function's contract the device of `id` is one of this driver.
            let device = unsafe { DeviceObject::<D>::get((*id).device)? };
            // SAFETY: By this function's contract `id` is live, and bound to an iWARP device.
            let data = unsafe { bindings::rsiw_cm_provider_data(id) };
            let Some(handle) = Handle::from_provider_data(data) else {
                return Ok(0);
            };
            // SAFETY: By this function's contract only this call uses `msg`.
            unsafe { ResAttrs::write(msg, |attrs| D::describe_cm_id(device, handle, attrs)) }
        })
    }
}
