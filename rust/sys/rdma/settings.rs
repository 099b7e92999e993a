// SPDX-License-Identifier: GPL-2.0

//! Settings of a device as sysfs files, in `/sys/class/infiniband/NAME/rsiw/`.
//!
//! C header: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h)

use kernel::{
    error::from_result,
    prelude::*, //
};

use crate::sys::{
    bindings,
    rdma::{
        driver::Driver,
        iwcm::CmOps, //
        objects::DeviceObject,
        vtable::Vtable,
    }, //
};

/// A setting of a device (`RSIW_SETTING_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Whether connections request CRCs: 0 or 1.
    Crc,
    /// The longest delay of a doorbell, in microseconds.
    DoorbellCoalesceUsecs,
}

impl Setting {
    /// Converts a number of `include/ib.h`; `None` for an unknown number.
    fn from_number(number: u32) -> Option<Self> {
        match number {
            bindings::RSIW_SETTING_CRC => Some(Self::Crc),
            bindings::RSIW_SETTING_DOORBELL_COALESCE_USECS => Some(Self::DoorbellCoalesceUsecs),
            _ => None,
        }
    }
}

impl<D: Driver + CmOps> Vtable<D> {
    /// Adds the sysfs files of the settings to a device.
    ///
    /// # Safety
    ///
    /// `device` is allocated, and not yet registered.
    pub(super) unsafe fn add_settings(device: *mut bindings::ib_device) {
        // SAFETY: By this function's contract the device is allocated and not registered.
        unsafe {
            bindings::rsiw_device_settings(
                device,
                Some(Self::get_setting),
                Some(Self::set_setting),
            );
        }
    }

    /// Reads a setting. Process context. `EINVAL`: the number is unknown.
    ///
    /// # Safety
    ///
    /// Called with a device that stays registered during the call; `value` is writable.
    unsafe extern "C" fn get_setting(
        device: *mut bindings::ib_device,
        number: u32,
        value: *mut u32,
    ) -> c_int {
        from_result(|| {
            let setting = Setting::from_number(number).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the device stays registered, and `value` is
            // writable.
            unsafe { *value = D::setting(DeviceObject::<D>::get(device)?, setting) };
            Ok(0)
        })
    }

    /// Changes a setting. Process context. `EINVAL`: the value is out of range, or the number is
    /// unknown.
    ///
    /// # Safety
    ///
    /// As [`get_setting`](Self::get_setting).
    unsafe extern "C" fn set_setting(
        device: *mut bindings::ib_device,
        number: u32,
        value: u32,
    ) -> c_int {
        from_result(|| {
            let setting = Setting::from_number(number).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the device stays registered during the call.
            let device = unsafe { DeviceObject::<D>::get(device)? };
            D::set_setting(device, setting, value).map(|()| 0)
        })
    }
}
