// SPDX-License-Identifier: GPL-2.0

//! Settings of a device. The defaults are the module's parameters.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::{
    params,
    sys::rdma::settings::Setting, //
};

/// The settings of a device. A change applies to connections that start later.
pub(crate) struct Settings {
    /// Whether connections request CRCs: 0 or 1.
    crc: Atomic<u32>,
    /// The longest delay of a doorbell, in microseconds.
    doorbell_coalesce_usecs: Atomic<u32>,
}

impl Settings {
    /// The defaults, from the parameters of the module.
    pub(super) fn new() -> Self {
        Self {
            crc: Atomic::new(params::crc().into()),
            doorbell_coalesce_usecs: Atomic::new(params::doorbell_coalesce_usecs()),
        }
    }

    /// Whether connections request CRCs. Any context.
    pub(crate) fn crc(&self) -> bool {
        self.crc.load(Relaxed) != 0
    }

    /// The longest delay of a doorbell, in microseconds. Any context.
    pub(crate) fn doorbell_coalesce_usecs(&self) -> u32 {
        self.doorbell_coalesce_usecs.load(Relaxed)
    }

    /// The variable of a setting, and the largest value.
    fn of(&self, setting: Setting) -> (&Atomic<u32>, u32) {
        match setting {
            Setting::Crc => (&self.crc, 1),
            Setting::DoorbellCoalesceUsecs => {
                (&self.doorbell_coalesce_usecs, params::MAX_DOORBELL_USECS)
            }
        }
    }

    /// The value of a setting. Any context.
    pub(crate) fn get(&self, setting: Setting) -> u32 {
        self.of(setting).0.load(Relaxed)
    }

    /// Changes a setting; `EINVAL` for a value out of range. Any context.
    pub(crate) fn set(&self, setting: Setting, value: u32) -> Result {
        let (at, most) = self.of(setting);
        if value > most {
            return Err(EINVAL);
        }
        at.store(value, Relaxed);
        Ok(())
    }
}
