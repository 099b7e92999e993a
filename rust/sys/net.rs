// SPDX-License-Identifier: GPL-2.0

//! The driver's interface to networking: addresses and namespaces; [`skb`], [`socket`] and
//! [`sockcell`].
//!
//! C headers: [`include/linux/socket.h`](srctree/include/linux/socket.h),
//! [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

pub(crate) mod skb;
pub(crate) mod sockcell;
pub(crate) mod socket;

use core::ptr::{
    self,
    NonNull, //
};

pub(crate) use core::net::{
    Ipv4Addr,
    Ipv6Addr,
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6, //
};

use kernel::prelude::*;

use super::{
    bindings,
    errno::EAFNOSUPPORT, //
};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of `addr`.
    pub(crate) fn of(addr: &SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }

    /// The number of the family (`AF_*`).
    pub(super) fn as_raw(self) -> c_int {
        match self {
            Self::V4 => bindings::AF_INET as c_int,
            Self::V6 => bindings::AF_INET6 as c_int,
        }
    }
}

/// The C structure for an address of any family.
pub(crate) type Storage = bindings::__kernel_sockaddr_storage;

const _: () = assert!(
    size_of::<Storage>() >= size_of::<bindings::sockaddr_in6>()
        && align_of::<Storage>() >= align_of::<bindings::sockaddr_in6>()
        && align_of::<Storage>() >= align_of::<bindings::sockaddr_in>()
);

/// Reads an address from the C structure.
///
/// # Errors
///
/// `EAFNOSUPPORT` for a family other than IPv4 and IPv6.
pub(crate) fn from_storage(storage: &Storage) -> Result<SocketAddr> {
    let raw = ptr::from_ref(storage);
    // SAFETY: The storage has the size and alignment of any address. Both structures begin with the
    // family, and any octets are valid values of their fields.
    let v4 = unsafe { &*raw.cast::<bindings::sockaddr_in>() };
    // SAFETY: As above.
    let v6 = unsafe { &*raw.cast::<bindings::sockaddr_in6>() };
    let family = c_int::from(v4.sin_family);
    if family == Family::V4.as_raw() {
        let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
        let port = u16::from_be(v4.sin_port);
        Ok(SocketAddr::V4(SocketAddrV4::new(ip, port)))
    } else if family == Family::V6.as_raw() {
        let ip = ptr::from_ref(&v6.sin6_addr).cast::<[u8; 16]>();
        Ok(SocketAddr::V6(SocketAddrV6::new(
            // SAFETY: An `in6_addr` is 16 octets.
            Ipv6Addr::from(unsafe { *ip }),
            u16::from_be(v6.sin6_port),
            u32::from_be(v6.sin6_flowinfo),
            v6.sin6_scope_id,
        )))
    } else {
        Err(EAFNOSUPPORT)
    }
}

/// Writes an address to the C structure.
pub(crate) fn to_storage(addr: &SocketAddr) -> Storage {
    let mut storage = Storage::default();
    let raw = &raw mut storage;
    match addr {
        SocketAddr::V4(addr) => {
            // SAFETY: As in `from_storage`.
            let v4 = unsafe { &mut *raw.cast::<bindings::sockaddr_in>() };
            v4.sin_family = Family::V4.as_raw() as u16;
            v4.sin_port = addr.port().to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes(addr.ip().octets());
        }
        SocketAddr::V6(addr) => {
            // SAFETY: As in `from_storage`.
            let v6 = unsafe { &mut *raw.cast::<bindings::sockaddr_in6>() };
            v6.sin6_family = Family::V6.as_raw() as u16;
            v6.sin6_port = addr.port().to_be();
            v6.sin6_flowinfo = addr.flowinfo().to_be();
            v6.sin6_scope_id = addr.scope_id();
            let ip = ptr::from_mut(&mut v6.sin6_addr).cast::<[u8; 16]>();
            // SAFETY: An `in6_addr` is 16 octets.
            unsafe { *ip = addr.ip().octets() };
        }
    }
    storage
}

/// The length of the C structure for the family of `addr`, in octets.
pub(super) fn storage_len(addr: &SocketAddr) -> c_int {
    (match addr {
        SocketAddr::V4(_) => size_of::<bindings::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<bindings::sockaddr_in6>(),
    }) as c_int
}

/// A counted reference to a network namespace.
///
/// The reference delays the removal of the namespace, as a user's socket does. So no object that
/// the removal destroys may own one. A device takes a reference for each use.
///
/// # Invariants
///
/// The pointer names a `struct net`, and the value owns one reference to it.
pub(crate) struct NetNs(NonNull<bindings::net>);

// SAFETY: `struct net` is reference counted by atomics and used from any CPU.
unsafe impl Send for NetNs {}
// SAFETY: As above.
unsafe impl Sync for NetNs {}

impl NetNs {
    /// Takes ownership of a reference.
    ///
    /// # Safety
    ///
    /// The caller owns a reference to `net`, which passes to the value.
    pub(super) unsafe fn from_owned(net: NonNull<bindings::net>) -> Self {
        // INVARIANT: By this function's contract.
        Self(net)
    }

    /// The initial network namespace.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn init() -> Option<Self> {
        // SAFETY: `init_net` always exists.
        let net = unsafe { bindings::rsiw_net_get((&raw mut bindings::init_net).cast()) };
        // SAFETY: The call above has taken the reference, which passes to the value.
        NonNull::new(net).map(|net| unsafe { Self::from_owned(net) })
    }

    /// The identity of the namespace, unique while the namespace exists.
    pub(crate) fn id(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The C object.
    pub(crate) fn as_ptr(&self) -> *mut bindings::net {
        self.0.as_ptr()
    }
}

impl Clone for NetNs {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant the value owns a reference, so another one can be taken.
        unsafe { bindings::rsiw_net_hold(self.as_ptr()) };
        // INVARIANT: The value owns the reference taken above.
        Self(self.0)
    }
}

impl PartialEq for NetNs {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the value owns the reference, which is not used after this.
        unsafe { bindings::rsiw_net_put(self.as_ptr()) }
    }
}

#[kunit_tests(rsiw_sys_net)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() -> Result {
        let v4 = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 33), 4791));
        let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 0xabcd);
        let v6 = SocketAddr::V6(SocketAddrV6::new(ip, 20049, 0x12345, 7));
        for addr in [v4, v6] {
            let storage = to_storage(&addr);
            assert!(from_storage(&storage)? == addr);
        }
        Ok(())
    }

    #[test]
    fn v4_lies_as_c_expects_it() {
        let addr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 0x1234));
        let storage = to_storage(&addr);
        // SAFETY: The storage has the size and alignment of any address.
        let v4 = unsafe { &*ptr::from_ref(&storage).cast::<bindings::sockaddr_in>() };
        assert_eq!(v4.sin_port.to_ne_bytes(), [0x12, 0x34]);
        assert_eq!(v4.sin_addr.s_addr.to_ne_bytes(), [10, 1, 2, 3]);
    }

    #[test]
    fn other_families_are_refused() {
        let storage = Storage::default();
        assert!(from_storage(&storage).is_err());
    }

    #[test]
    fn namespaces_are_the_same_or_not() -> Result {
        let init = NetNs::init().ok_or(ENODEV)?;
        let other = init.clone();
        assert!(init == other);
        Ok(())
    }
}
