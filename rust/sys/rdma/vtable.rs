// SPDX-License-Identifier: GPL-2.0

//! The table of verbs callbacks (`struct ib_device_ops`), and the verbs of devices, ports and
//! protection domains.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use core::marker::PhantomData;

use kernel::{
    error::from_result,
    ffi::c_char,
    prelude::*, //
};

use crate::sys::{
    bindings,
    module, //
    rdma::{
        iwcm::{
            CmOps, //
            IwCmCallbacks,
        }, //
        mmap,
        objects::{
            CqObject,
            DeviceObject,
            PdObject,
            QpObject,
            SrqObject, //
        },
        udata::Udata,
    },
};

/// The C callbacks of `ib_core` for driver `D`.
pub(super) struct Vtable<D>(PhantomData<D>);

/// The length of a version buffer in octets (`IB_FW_VERSION_NAME_MAX`, `ETHTOOL_FWVERS_LEN`).
const FW_VERSION_MAX: usize = 32;

/// The number of the only port.
const PORT: u32 = 1;

impl<D: CmOps> Vtable<D> {
    /// The table for `ib_set_device_ops()`, which copies it.
    pub(super) const OPS: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: module::this_module(),
        driver_id: bindings::rdma_driver_id_RDMA_DRIVER_SIW,
        uverbs_abi_ver: bindings::SIW_ABI_VERSION,

        query_device: Some(Self::query_device),
        get_dev_fw_str: Some(Self::get_dev_fw_str),
        query_port: Some(Self::query_port),
        get_port_immutable: Some(Self::get_port_immutable),
        query_gid: Some(Self::query_gid),
        enable_driver: Some(Self::enable_driver),
        dealloc_driver: Some(Self::dealloc_driver),
        alloc_hw_port_stats: Some(Self::alloc_hw_port_stats),
        get_hw_stats: Some(Self::get_hw_stats),
        fill_res_qp_entry: Some(Self::fill_res_qp_entry),
        fill_res_mr_entry: Some(Self::fill_res_mr_entry),
        fill_res_cm_id_entry: Some(Self::fill_res_cm_id_entry),

        alloc_ucontext: Some(Self::alloc_ucontext),
        dealloc_ucontext: Some(Self::dealloc_ucontext),
        disassociate_ucontext: Some(Self::disassociate_ucontext),
        mmap: Some(mmap::mmap),
        mmap_free: Some(mmap::mmap_free),

        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),

        create_cq: Some(Self::create_cq),
        destroy_cq: Some(Self::destroy_cq),
        poll_cq: Some(Self::poll_cq),
        req_notify_cq: Some(Self::req_notify_cq),

        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        query_qp: Some(Self::query_qp),
        destroy_qp: Some(Self::destroy_qp),
        post_send: Some(Self::post_send),
        post_recv: Some(Self::post_recv),

        create_srq: Some(Self::create_srq),
        modify_srq: Some(Self::modify_srq),
        query_srq: Some(Self::query_srq),
        destroy_srq: Some(Self::destroy_srq),
        post_srq_recv: Some(Self::post_srq_recv),

        get_dma_mr: Some(Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        alloc_mr: Some(Self::alloc_mr),
        map_mr_sg: Some(Self::map_mr_sg),
        dereg_mr: Some(Self::dereg_mr),

        iw_add_ref: Some(IwCmCallbacks::<D>::add_ref),
        iw_rem_ref: Some(IwCmCallbacks::<D>::rem_ref),
        iw_get_qp: Some(IwCmCallbacks::<D>::get_qp),
        iw_connect: Some(IwCmCallbacks::<D>::connect),
        iw_accept: Some(IwCmCallbacks::<D>::accept),
        iw_reject: Some(IwCmCallbacks::<D>::reject),
        iw_create_listen: Some(IwCmCallbacks::<D>::create_listen),
        iw_destroy_listen: Some(IwCmCallbacks::<D>::destroy_listen),

        size_ib_ucontext: size_of::<bindings::ib_ucontext>(),
        size_ib_pd: size_of::<PdObject<D>>(),
        size_ib_cq: size_of::<CqObject<D>>(),
        size_ib_qp: size_of::<QpObject<D>>(),
        size_ib_srq: size_of::<SrqObject<D>>(),

        ..pin_init::zeroed()
    };

    /// `query_device`: reports the limits of the device. Driver data of a process is refused.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a device and a writable structure.
    unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `udata` is null, or the data of this call.
        let ret = unsafe { bindings::rsiw_no_udata_io(udata) };
        if ret != 0 {
            return ret;
        }
        // SAFETY: By this function's contract `device` is alive, and `attr` is writable.
        let (guid, attr) = unsafe { ((*device).node_guid, &mut *attr) };
        D::LIMITS.fill(guid, attr);
        0
    }

    /// `get_dev_fw_str`: reports the version of the module, for `rdma dev` and `fw_ver` of sysfs.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a buffer of `IB_FW_VERSION_NAME_MAX` octets.
    unsafe extern "C" fn get_dev_fw_str(_device: *mut bindings::ib_device, text: *mut c_char) {
        let version = module::VERSION.as_bytes();
        const { assert!(module::VERSION.len() < FW_VERSION_MAX) };
        // SAFETY: The caller's buffer holds the version and a NUL, as asserted above.
        unsafe {
            text.cast::<u8>()
                .copy_from_nonoverlapping(version.as_ptr(), version.len());
            text.add(version.len()).write(0);
        }
    }

    /// `query_port`: reports the state of the port, which is that of the interface. `EINVAL`: the
    /// port is not 1.
    ///
    /// The function takes no lock of the network stack, since the caller may hold one. The speed is
    /// that of the interface at the last change of its link.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a device and a zeroed, writable structure.
    unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        if port != PORT {
            return EINVAL.to_errno();
        }
        // SAFETY: By this function's contract `attr` is writable.
        let attr = unsafe { &mut *attr };
        // SAFETY: `device` is alive; the helper accepts a device without an interface.
        let info = unsafe { bindings::rsiw_port_info(device) };
        attr.max_mtu = info.mtu;
        attr.active_mtu = info.mtu;
        attr.phys_mtu = info.octets;
        attr.gid_tbl_len = D::LIMITS.gids as c_int;
        attr.max_msg_sz = D::LIMITS.message;
        attr.port_cap_flags = bindings::ib_port_capability_mask_bits_IB_PORT_CM_SUP
            | bindings::ib_port_capability_mask_bits_IB_PORT_DEVICE_MGMT_SUP;
        // SAFETY: The device is registered or being registered, and `Allocated::register` has
        // filled in its object.
        let speed = unsafe { DeviceObject::<D>::get(device) }.map_or(0, |device| D::speed(device));
        (attr.active_width, attr.active_speed) = width_and_speed(speed);
        (attr.state, attr.phys_state) = if info.up {
            (
                bindings::ib_port_state_IB_PORT_ACTIVE,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP as u8,
            )
        } else {
            (
                bindings::ib_port_state_IB_PORT_DOWN,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED as u8,
            )
        };
        0
    }

    /// `get_port_immutable`: reports the constant attributes of a port.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a writable structure.
    unsafe extern "C" fn get_port_immutable(
        _device: *mut bindings::ib_device,
        _port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        // SAFETY: By this function's contract `immutable` is writable.
        let immutable = unsafe { &mut *immutable };
        immutable.gid_tbl_len = D::LIMITS.gids as c_int;
        immutable.core_cap_flags = bindings::RDMA_CORE_PORT_IWARP;
        0
    }

    /// `query_gid`: reads an entry of the GID table; all zero for an empty entry. Any context.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a device and a writable GID.
    unsafe extern "C" fn query_gid(
        device: *mut bindings::ib_device,
        _port: u32,
        index: c_int,
        gid: *mut bindings::ib_gid,
    ) -> c_int {
        from_result(|| {
            let index = u32::try_from(index)?;
            // SAFETY: The device is registered or being registered, and `Allocated::register` has
            // filled in its object.
            let device = unsafe { DeviceObject::<D>::get(device)? };
            // SAFETY: By this function's contract `gid` is writable; an `ib_gid` has 16 octets.
            unsafe { gid.cast::<[u8; 16]>().write(D::gid(device, index)) };
            Ok(0)
        })
    }

    /// `enable_driver`: called before `ib_core` adds the device to its clients.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a device that is registered, or being registered.
    unsafe extern "C" fn enable_driver(device: *mut bindings::ib_device) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract the device is registered or being registered, and
            // `Allocated::register` has filled in its object.
            D::enable(unsafe { DeviceObject::<D>::get(device)? })?;
            Ok(0)
        })
    }

    /// `dealloc_driver`: called at the end of a device, or after a failed registration.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it once, when no verbs call runs or will run.
    unsafe extern "C" fn dealloc_driver(device: *mut bindings::ib_device) {
        // SAFETY: By this function's contract only this call uses the object, if it is filled in.
        if let Some(device) = unsafe { DeviceObject::<D>::empty(device) } {
            D::removed(&device);
        }
    }

    /// `alloc_ucontext`: creates a user context; the response has the index of the device.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a context of a device, and the data of the call.
    unsafe extern "C" fn alloc_ucontext(
        context: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: `udata` is the data of this call.
            let udata = unsafe { Udata::new(udata) }.ok_or(EINVAL)?;
            let mut reply: bindings::siw_uresp_alloc_ctx = pin_init::zeroed();
            // SAFETY: `ib_core` has set the device of the context.
            reply.dev_id = unsafe { (*(*context).device).index };
            udata.reply(&reply)?;
            Ok(0)
        })
    }

    /// `dealloc_ucontext`: no effect, as a user context holds no data of this driver.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn dealloc_ucontext(_context: *mut bindings::ib_ucontext) {}

    /// `disassociate_ucontext`: no effect. The device is removed while the context is open, and
    /// `ib_core` destroys the objects of the context.
    ///
    /// `ib_core` removes a device with open contexts only if this callback exists. Mapped rings
    /// stay until they are unmapped, since they are ordinary memory.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}

    /// `alloc_pd`: creates a protection domain.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with zeroed memory of `size_ib_pd` octets that names its device.
    unsafe extern "C" fn alloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `pd` names its device, which is registered.
            let device = unsafe { DeviceObject::<D>::get((*pd).device)? };
            let inner = D::create_pd(device)?;
            // SAFETY: By this function's contract `pd` is a new object that no other context uses.
            unsafe { PdObject::<D>::fill(pd, inner, None, [None, None]) };
            Ok(0)
        })
    }

    /// `dealloc_pd`: destroys a protection domain.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it once, with a domain that [`alloc_pd`](Self::alloc_pd) has filled in.
    unsafe extern "C" fn dealloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: By this function's contract `pd` is filled in, and no other context uses it.
        drop(unsafe { PdObject::<D>::empty(pd) });
        0
    }

    /// `alloc_hw_port_stats`: allocates the counters of a port, with their names; null without
    /// memory. Process context; sleeps.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn alloc_hw_port_stats(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        let mut descs = [const { core::ptr::null::<kernel::ffi::c_char>() }; MAX_COUNTERS];
        for (slot, name) in descs.iter_mut().zip(D::COUNTERS) {
            *slot = name.as_char_ptr();
        }
        let n = D::COUNTERS.len().min(MAX_COUNTERS);
        // SAFETY: The array has `n` names, which are valid as long as the module.
        unsafe { bindings::rsiw_alloc_stats(descs.as_ptr(), n as c_int) }
    }

    /// `get_hw_stats`: reads the counters of a port, and returns their number. `EINVAL`: the port
    /// is not 1.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a device and the counters of
    /// [`alloc_hw_port_stats`](Self::alloc_hw_port_stats).
    unsafe extern "C" fn get_hw_stats(
        device: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        from_result(|| {
            if port != PORT {
                return Err(EINVAL);
            }
            // SAFETY: By this function's contract the device is registered.
            let device = unsafe { DeviceObject::<D>::get(device)? };
            let n = D::COUNTERS.len().min(MAX_COUNTERS);
            for index in 0..n {
                // SAFETY: `alloc_hw_port_stats` has allocated `n` values, and `index` is below `n`.
                unsafe {
                    bindings::rsiw_set_stat(stats, index as c_int, D::counter(device, index))
                };
            }
            Ok(n as c_int)
        })
    }
}

/// A width and a speed of a port (`enum ib_port_width`, `enum ib_port_speed`) that carry `megabits`
/// per second. For an unknown speed (0) the result is 4X SDR, 10 Gb/s.
fn width_and_speed(megabits: u32) -> (u8, u16) {
    use bindings::{
        ib_port_speed_IB_SPEED_EDR as EDR,
        ib_port_speed_IB_SPEED_FDR10 as FDR10,
        ib_port_speed_IB_SPEED_HDR as HDR,
        ib_port_speed_IB_SPEED_NDR as NDR,
        ib_port_speed_IB_SPEED_SDR as SDR,
        ib_port_speed_IB_SPEED_XDR as XDR,
        ib_port_width_IB_WIDTH_1X as X1,
        ib_port_width_IB_WIDTH_2X as X2,
        ib_port_width_IB_WIDTH_4X as X4,
        ib_port_width_IB_WIDTH_8X as X8, //
    };
    let (width, speed) = match megabits {
        0 => (X4, SDR),
        1..=2_500 => (X1, SDR),
        2_501..=5_000 => (X2, SDR),
        5_001..=10_000 => (X1, FDR10),
        10_001..=25_000 => (X1, EDR),
        25_001..=40_000 => (X4, FDR10),
        40_001..=50_000 => (X2, EDR),
        50_001..=100_000 => (X4, EDR),
        100_001..=200_000 => (X4, HDR),
        200_001..=400_000 => (X4, NDR),
        400_001..=800_000 => (X8, NDR),
        _ => (X8, XDR),
    };
    (width as u8, speed as u16)
}

/// The maximum number of counters of a driver; the array in `rsiw_alloc_stats()` has this length.
const MAX_COUNTERS: usize = 48;
