// SPDX-License-Identifier: GPL-2.0

//! Big-endian fields, read and written in order.
//!
//! All integers of MPA, DDP and RDMAP are big endian, except the CRC (see [`crate::crc`]).

/// Copies `from` to `to` if their lengths are equal; tells whether they are.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) -> bool {
    // With this comparison the compiler omits the panic of a copy of unequal lengths.
    let same = to.len() == from.len();
    if same {
        to.copy_from_slice(from);
    }
    same
}

/// Reads fields from the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader at the first of `octets`.
    #[inline]
    pub(crate) const fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    /// Takes the next `N` octets.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (now, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*now)
    }

    /// Takes one octet.
    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    /// Takes a 16-bit field.
    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a 32-bit field.
    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a 64-bit field.
    #[inline]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The octets that were not taken.
    #[inline]
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Writes fields in order into an array of `N` octets.
///
/// `N` fits the fixed layouts of this crate. Octets that do not fit are left out.
pub(crate) struct Writer<const N: usize> {
    /// The octets written, zeros after them.
    octets: [u8; N],
    /// Octets written; at most `N`.
    len: usize,
}

impl<const N: usize> Writer<N> {
    /// An empty writer.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            octets: [0; N],
            len: 0,
        }
    }

    /// Appends octets.
    #[inline]
    pub(crate) fn put(mut self, octets: &[u8]) -> Self {
        let end = self.len.saturating_add(octets.len());
        if let Some(to) = self.octets.get_mut(self.len..end) {
            if copy(to, octets) {
                self.len = end;
            }
        }
        self
    }

    /// Appends one octet.
    #[inline]
    pub(crate) fn u8(self, value: u8) -> Self {
        self.put(&[value])
    }

    /// Appends a 16-bit field.
    #[inline]
    pub(crate) fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Appends a 32-bit field.
    #[inline]
    pub(crate) fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Appends a 64-bit field.
    #[inline]
    pub(crate) fn u64(self, value: u64) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// The whole array, with zeros after the octets written.
    #[inline]
    pub(crate) const fn finish(self) -> [u8; N] {
        self.octets
    }

    /// Octets written so far.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

/// At most `N` octets, as encoders return them.
#[derive(Clone, Copy)]
pub(crate) struct Short<const N: usize> {
    /// The octets, zeros after them.
    octets: [u8; N],
    /// Octets in use; at most `N`.
    len: u8,
}

impl<const N: usize> Short<N> {
    /// No octets.
    pub(crate) const EMPTY: Self = Self {
        octets: [0; N],
        len: 0,
    };

    /// The octets in use.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl<const N: usize> From<Writer<N>> for Short<N> {
    #[inline]
    fn from(writer: Writer<N>) -> Self {
        const { assert!(N <= u8::MAX as usize) };
        // The bound above makes the conversion exact.
        #[expect(clippy::cast_possible_truncation)]
        let len = writer.len() as u8;
        Self {
            octets: writer.finish(),
            len,
        }
    }
}
