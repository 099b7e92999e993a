// SPDX-License-Identifier: GPL-2.0

//! One who has connected, until he is led to the queue pair he names.

use iwarp_wire::mpa::startup::FrameKind;
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use super::{
    super::frame::FrameReader,
    door::Door,
    visitor::Visitor,
    Welcome, //
};
use crate::sys::{
    socket::{
        CallbackSock,
        Guest,
        Handler, //
    },
    work, //
};

/// What he does.
enum State {
    /// He has to say what he wants.
    Speaks(FrameReader, Guest),
    /// His queue pair has not been told of its peer yet.
    Sits(Visitor),
    /// He has left.
    Gone,
}

/// A stranger.
#[pin_data]
pub(super) struct Stranger {
    /// Where he came in.
    door: Arc<Door>,
    /// What he does.
    #[pin]
    state: Mutex<State>,
    /// Looks at the socket.
    #[pin]
    look: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Stranger { self.look }
}

impl WorkItem for Stranger {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.attend();
    }
}

impl Stranger {
    /// One who comes in.
    pub(super) fn new(door: &Arc<Door>, socket: Guest) -> Result<Arc<Self>> {
        let reader = FrameReader::new(FrameKind::Request)?;
        let stranger = Arc::pin_init(
            pin_init!(Self {
                door: door.clone(),
                state <- new_mutex!(State::Gone, "rsiw_stranger"),
                look <- new_work!("rsiw_stranger_look"),
            }),
            GFP_KERNEL,
        )?;
        socket.install(stranger.clone());
        *stranger.state.lock() = State::Speaks(reader, socket);
        Ok(stranger)
    }

    /// Has the work item look at the socket. Any context.
    pub(super) fn look(self: &Arc<Self>) {
        let _ = work::process().enqueue(self.clone());
    }

    /// Sends him away without an answer. Process context; sleeps.
    pub(super) fn dismiss(&self) {
        let state = core::mem::replace(&mut *self.state.lock(), State::Gone);
        // Closes the socket.
        drop(state);
    }

    /// Has him wait. Called by the door, under its lock.
    pub(super) fn sit(&self, visitor: Visitor) {
        *self.state.lock() = State::Sits(visitor);
    }

    /// Takes him from his seat if he waits for queue pair `number`. Called by the door, under its
    /// lock.
    pub(super) fn stand_up(&self, number: u32) -> Option<Visitor> {
        let mut state = self.state.lock();
        match core::mem::replace(&mut *state, State::Gone) {
            State::Sits(visitor) if visitor.hello.to == number => Some(visitor),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Looks at the socket, and leads him on if he has said what he wants.
    fn attend(self: &Arc<Self>) {
        let visitor = {
            let mut state = self.state.lock();
            match core::mem::replace(&mut *state, State::Gone) {
                State::Speaks(mut reader, socket) => match reader.read(&socket) {
                    Ok(None) => {
                        *state = State::Speaks(reader, socket);
                        return;
                    }
                    // Now somebody may want it.
                    Ok(Some(frame)) => match socket.hold() {
                        Ok(socket) => Visitor::new(socket, &frame),
                        Err(_) => None,
                    },
                    // Whoever does not send a Request is not worth an answer.
                    Err(_) => None,
                },
                State::Sits(visitor) if !visitor.is_gone() => {
                    *state = State::Sits(visitor);
                    return;
                }
                State::Sits(_) => None,
                State::Gone => return,
            }
        };
        match visitor {
            Some(visitor) => self.lead(visitor),
            None => self.door.forget(self),
        }
    }

    /// Leads him to his queue pair, or to a seat.
    #[inline(never)]
    fn lead(self: &Arc<Self>, visitor: Visitor) {
        let number = visitor.hello.to;
        let net = self.door.net();
        match super::receive(net, visitor) {
            Welcome::Done => {}
            Welcome::Later(visitor) => {
                if self.door.seat(self, visitor).is_ok() {
                    // The queue pair may have been told of its peer meanwhile, and have looked for
                    // him before he sat.
                    if super::is_expecting(net, number) {
                        if let Some(visitor) = self.door.waiting_for(number) {
                            let _ = super::receive(net, visitor);
                        }
                    }
                    return;
                }
            }
        }
        self.door.forget(self);
    }
}

impl Handler for Stranger {
    fn data_ready(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }

    fn write_space(_this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {}

    fn state_change(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }

    fn error_report(this: ArcBorrow<'_, Self>, _socket: CallbackSock<'_>) {
        Arc::from(this).look();
    }
}
