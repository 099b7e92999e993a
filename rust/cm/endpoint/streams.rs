// SPDX-License-Identifier: GPL-2.0

//! The streams that an endpoint has started.

use core::mem;

use kernel::sync::Arc;

use crate::stream::{
    Close,
    Stream, //
};

/// The streams of an endpoint: there are two where a queue pair is connected to itself.
#[derive(Default)]
pub(crate) struct Streams([Option<Arc<Stream>>; 2]);

impl Streams {
    /// Adds a stream.
    pub(crate) fn add(&mut self, stream: &Arc<Stream>) {
        if let Some(free) = self.0.iter_mut().find(|place| place.is_none()) {
            *free = Some(stream.clone());
        }
    }

    /// Takes all streams; `None` if there are none.
    pub(crate) fn take(&mut self) -> Option<Self> {
        let some = self.0.iter().any(Option::is_some);
        some.then(|| mem::take(self))
    }

    /// Resets the connections of the streams.
    pub(crate) fn abort(&self) {
        for stream in self.0.iter().flatten() {
            stream.close(Close::Abort);
        }
    }
}
