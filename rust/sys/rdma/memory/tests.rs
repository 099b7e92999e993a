// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of the memory of regions: segments joined to one range, write protection, and
//! invalid addresses.

use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};

use kernel::{
    kvec,
    page::Page,
    prelude::*, //
};

use super::{
    Backing,
    KernelMemory,
    Segments,
    UserPages, //
};
use crate::sys::bindings;

#[kunit_tests(rsiw_sys_ib_memory)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_range() -> Result {
        // Segments of odd lengths, one of them empty.
        let buffers = kvec![
            kvec![0u8; 7]?,
            kvec![0u8; 1]?,
            KVec::new(),
            kvec![0u8; 4099]?,
            kvec![0u8; 3]?
        ]?;
        let total = 7 + 1 + 4099 + 3usize;
        let mut segments = Segments::with_capacity(8, GFP_KERNEL)?;
        segments.fill_for_test(&buffers)?;
        assert_eq!(segments.total(), total as u64);
        let backing = Backing::Segments(segments);
        let mut pattern = KVec::with_capacity(total, GFP_KERNEL)?;
        for i in 0..total {
            pattern.push((i % 251) as u8, GFP_KERNEL)?;
        }
        backing.write(0, (&pattern[..]).into())?;
        let Backing::Segments(segments) = &backing else {
            return Err(EINVAL);
        };
        assert_eq!(segments.kept.len(), buffers.len());
        let mut at = 0;
        for buffer in &segments.kept {
            for octet in buffer {
                assert_eq!(usize::from(*octet), at % 251);
                at += 1;
            }
        }
        assert_eq!(at, total);
        // Every offset near the ends of segments.
        let mut out = [0u8; 12];
        for off in 0..total {
            if (10..4098).contains(&off) {
                continue;
            }
            for len in 0..out.len() {
                let out = out.get_mut(..len).ok_or(EINVAL)?;
                let fits = off + len <= total;
                assert_eq!(backing.read(off as u64, out).is_ok(), fits);
                if fits {
                    assert!(pattern.get(off..off + len) == Some(&*out));
                }
            }
        }
        assert!(backing.write(total as u64, (&[1u8][..]).into()).is_err());
        assert!(backing.write(u64::MAX, (&[1u8][..]).into()).is_err());
        Ok(())
    }

    /// DDP-84: a process may have mapped the pages read-only, or share them with other processes.
    #[test]
    fn pages_pinned_for_reading_are_not_written() -> Result {
        let page = Page::alloc_page(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: The page is allocated.
        let address = unsafe { bindings::rsiw_page_address(page.as_ptr()) };
        for writable in [true, false] {
            // The value has no `ib_umem`: only `drop` uses it, and `ManuallyDrop` prevents that.
            let mut backing = ManuallyDrop::new(Backing::User(UserPages {
                umem: NonNull::dangling(),
                pages: KVVec::from_elem(address, 1, GFP_KERNEL)?,
                first: 100,
                len: 8,
                writable,
            }));
            let written = backing.write(4, (&[7u8, 8][..]).into());
            let expected = if writable { Ok(()) } else { Err(EACCES) };
            assert!(written == expected);
            let mut out = [0u8; 8];
            backing.read(0, &mut out)?;
            assert_eq!(out, [0, 0, 0, 0, 7, 8, 0, 0]);
            if let Backing::User(pages) = &mut *backing {
                drop(core::mem::take(&mut pages.pages));
            }
        }
        Ok(())
    }

    #[test]
    fn stray_addresses_of_kernel_users_are_caught() {
        // SAFETY: The test uses only addresses that are refused, and the address of a local
        // variable.
        let memory = unsafe { KernelMemory::new() };
        let mut out = [0u8; 8];
        for addr in [
            0,
            8,
            0x1000,
            0x7fff_ffff_f000,
            i64::MAX as u64,
            u64::MAX - 3,
        ] {
            // User-mode Linux may have mapped any low address.
            if cfg!(not(CONFIG_UML)) || addr > i64::MAX as u64 {
                assert!(memory.read(addr, &mut out).is_err());
            }
        }
        let value = 0x0102_0304_0506_0708u64;
        let addr = (&raw const value) as u64;
        assert!(memory.read(addr, &mut out).is_ok());
        assert_eq!(u64::from_ne_bytes(out), value);
    }
}
