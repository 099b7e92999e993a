// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of the order of events, checked by a model of the states of `iw_cm`.

use core::{
    cell::Cell,
    mem::offset_of,
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    types::Opaque, //
};

use super::{
    event::{
        AcceptCall,
        Commitment,
        ConnectCall,
        Depths,
        ListenCall,
        Peers,
        PrivateData, //
    },
    id::CmId,
    Handle, //
};
use crate::sys::{
    bindings,
    errno::{
        ECONNABORTED,
        ECONNREFUSED,
        ECONNRESET, //
    },
    net::{
        from_storage,
        Ipv4Addr,
        SocketAddr,
        SocketAddrV4, //
    },
};

/// The states of an identifier (`enum iw_cm_state` of drivers/infiniband/core/iwcm.h) that the
/// model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Listen,
    ConnRecv,
    ConnSent,
    Established,
    Closing,
}

/// The recorded fields of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    status: i32,
    data: u8,
    ird: u8,
    ord: u8,
}

/// A model of `iw_cm` with one identifier.
#[repr(C)]
struct Fake {
    id: Opaque<bindings::iw_cm_id>,
    state: Cell<State>,
    refs: Cell<i32>,
    /// The number of delivered events.
    events: Cell<u32>,
    /// The number of events that are not valid in their state.
    wrong: Cell<u32>,
    /// Whether events with private data fail with `ENOMEM`.
    no_memory: Cell<bool>,
    last: Cell<Option<Told>>,
    provider_data: Cell<usize>,
    from: Cell<Option<SocketAddr>>,
    commitment: Commitment,
}

const _: () = assert!(offset_of!(Fake, id) == 0);

impl Fake {
    fn new(state: State) -> Result<KBox<Self>> {
        let id = bindings::iw_cm_id {
            event_handler: Some(deliver),
            add_ref: Some(add_ref),
            rem_ref: Some(rem_ref),
            ..pin_init::zeroed()
        };
        Ok(KBox::new(
            Self {
                id: Opaque::new(id),
                state: Cell::new(state),
                refs: Cell::new(1),
                events: Cell::new(0),
                wrong: Cell::new(0),
                no_memory: Cell::new(false),
                last: Cell::new(None),
                provider_data: Cell::new(0),
                from: Cell::new(None),
                commitment: Commitment::new(),
            },
            GFP_KERNEL,
        )?)
    }

    fn id(&self) -> Result<CmId> {
        // SAFETY: The identifier is that of the model. The box outlives the references of the test,
        // which `is_done` checks.
        unsafe { CmId::new(NonNull::new(self.id.get()).ok_or(EINVAL)?) }
    }

    fn connect(&self) -> Result<ConnectCall<'_>> {
        let id = self.id()?;
        Ok(ConnectCall::new(&self.commitment, id, peers(), None))
    }

    fn accept(&self) -> Result<AcceptCall<'_>> {
        Ok(AcceptCall::new(&self.commitment, self.id()?))
    }

    /// The handle that the driver has stored in the identifier.
    fn left(&self) -> usize {
        // SAFETY: The model is alive, and only the test uses its identifier.
        unsafe { (*self.id.get()).provider_data }.addr()
    }

    fn status(&self) -> Option<i32> {
        self.last.get().map(|told| told.status)
    }

    /// Whether the model is in `state` after `events` events, all of them valid, without a
    /// reference of the driver.
    fn is_done(&self, state: State, events: u32) -> bool {
        self.state.get() == state
            && self.events.get() == events
            && self.wrong.get() == 0
            && self.refs.get() == 1
    }
}

/// The model of an identifier.
///
/// # Safety
///
/// `id` is that of a [`Fake`] that is alive during `'a`.
unsafe fn fake<'a>(id: *mut bindings::iw_cm_id) -> &'a Fake {
    // SAFETY: By this function's contract `id` is the first field of a live `Fake`.
    unsafe { &*id.cast() }
}

/// # Safety
///
/// `id` is that of a [`Fake`].
unsafe extern "C" fn add_ref(id: *mut bindings::iw_cm_id) {
    // SAFETY: By this function's contract `id` is that of a live `Fake`.
    let fake = unsafe { fake(id) };
    fake.refs.set(fake.refs.get() + 1);
}

/// # Safety
///
/// `id` is that of a [`Fake`].
unsafe extern "C" fn rem_ref(id: *mut bindings::iw_cm_id) {
    // SAFETY: By this function's contract `id` is that of a live `Fake`.
    let fake = unsafe { fake(id) };
    fake.refs.set(fake.refs.get() - 1);
}

/// # Safety
///
/// `id` is that of a [`Fake`], `event` is valid.
unsafe extern "C" fn deliver(
    id: *mut bindings::iw_cm_id,
    event: *mut bindings::iw_cm_event,
) -> c_int {
    // SAFETY: By this function's contract `id` is that of a live `Fake`, and `event` is valid.
    let (fake, event) = unsafe { (fake(id), &*event) };
    if fake.no_memory.get() && event.private_data_len != 0 {
        return ENOMEM.to_errno();
    }
    fake.events.set(fake.events.get() + 1);
    fake.last.set(Some(Told {
        status: event.status,
        data: event.private_data_len,
        ird: event.ird,
        ord: event.ord,
    }));
    fake.from.set(from_storage(&event.remote_addr).ok());
    fake.provider_data.set(event.provider_data.addr());
    let next = match (fake.state.get(), event.event) {
        (State::ConnSent, bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY) => {
            if event.status == 0 {
                Some(State::Established)
            } else {
                Some(State::Idle)
            }
        }
        (State::ConnRecv, bindings::iw_cm_event_type_IW_CM_EVENT_ESTABLISHED) => {
            Some(State::Established)
        }
        (State::Established, bindings::iw_cm_event_type_IW_CM_EVENT_DISCONNECT) => {
            Some(State::Closing)
        }
        (State::Established | State::Closing, bindings::iw_cm_event_type_IW_CM_EVENT_CLOSE) => {
            Some(State::Idle)
        }
        (State::Listen, bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REQUEST)
            if event.status == 0 =>
        {
            Some(State::Listen)
        }
        _ => None,
    };
    match next {
        Some(next) => fake.state.set(next),
        None => fake.wrong.set(fake.wrong.get() + 1),
    }
    0
}

fn addr(host: u8) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), 7174))
}

fn peers() -> Peers {
    Peers {
        local: addr(1),
        remote: addr(2),
    }
}

fn data(octets: &[u8]) -> PrivateData<'_> {
    PrivateData::new(octets).unwrap_or(PrivateData::NONE)
}

#[kunit_tests(rsiw_sys_iwcm)]
mod suite {
    use super::*;

    #[test]
    fn refused_call_sends_nothing() -> Result {
        let fake = Fake::new(State::ConnSent)?;
        drop(fake.connect()?);
        assert!(fake.is_done(State::ConnSent, 0));
        assert_eq!(fake.commitment.result(Err(ECONNREFUSED)), Err(ECONNREFUSED));
        // A driver that reports success without a commitment would leave `iw_cm` waiting.
        assert_eq!(fake.commitment.result(Ok(())), Err(ECONNABORTED));
        let fake = Fake::new(State::ConnRecv)?;
        drop(fake.accept()?);
        assert!(fake.is_done(State::ConnRecv, 0));
        assert_eq!(fake.commitment.result(Ok(())), Err(ECONNABORTED));
        Ok(())
    }

    /// After an error of its callback `iw_cm` is idle, and calls `BUG()` on an event. So a
    /// committed call succeeds, although the driver returns an error.
    #[test]
    fn committed_call_succeeds() -> Result {
        let fake = Fake::new(State::ConnSent)?;
        drop(fake.connect()?.commit(Handle::new(7).ok_or(EINVAL)?));
        assert_eq!(fake.commitment.result(Err(EINVAL)), Ok(()));
        let fake = Fake::new(State::ConnRecv)?;
        drop(fake.accept()?.commit(peers()));
        assert_eq!(fake.commitment.result(Err(EINVAL)), Ok(()));
        Ok(())
    }

    #[test]
    fn connection_has_a_beginning_and_an_end() -> Result {
        let fake = Fake::new(State::ConnSent)?;
        let handle = Handle::new(7).ok_or(EINVAL)?;
        let connecting = fake.connect()?.commit(handle);
        assert_eq!(fake.left(), 7);
        let connected = connecting.connected(&peers(), Depths::new(256, 3), data(b"hello"))?;
        let told = Told {
            status: 0,
            data: 5,
            ird: 255,
            ord: 3,
        };
        assert_eq!(fake.last.get(), Some(told));
        assert_eq!(fake.from.get(), Some(addr(2)));
        connected.closed(Err(ECONNRESET));
        assert_eq!(fake.status(), Some(ECONNRESET.to_errno()));
        assert!(fake.is_done(State::Idle, 3));

        let fake = Fake::new(State::ConnRecv)?;
        let connected = fake.accept()?.commit(peers()).connected(Depths::new(1, 2));
        connected.closed(Ok(()));
        assert_eq!(fake.status(), Some(0));
        assert!(fake.is_done(State::Idle, 3));
        Ok(())
    }

    #[test]
    fn failed_connect_is_told_once() -> Result {
        let fake = Fake::new(State::ConnSent)?;
        let handle = Handle::new(7).ok_or(EINVAL)?;
        let connecting = fake.connect()?.commit(handle);
        connecting.failed(ECONNREFUSED, Depths::new(3, 5), data(b"go away"));
        let told = Told {
            status: ECONNREFUSED.to_errno(),
            data: 7,
            ird: 3,
            ord: 5,
        };
        assert_eq!(fake.last.get(), Some(told));
        assert!(fake.is_done(State::Idle, 1));
        Ok(())
    }

    #[test]
    fn failed_accept_is_established_and_closed() -> Result {
        let fake = Fake::new(State::ConnRecv)?;
        fake.accept()?.commit(peers()).failed(ETIMEDOUT);
        assert_eq!(fake.status(), Some(ETIMEDOUT.to_errno()));
        assert!(fake.is_done(State::Idle, 3));
        Ok(())
    }

    #[test]
    fn forgotten_calls_are_answered() -> Result {
        let aborted = Some(ECONNABORTED.to_errno());
        let fake = Fake::new(State::ConnSent)?;
        drop(fake.connect()?.commit(Handle::new(7).ok_or(EINVAL)?));
        assert_eq!(fake.status(), aborted);
        assert!(fake.is_done(State::Idle, 1));

        let fake = Fake::new(State::ConnRecv)?;
        drop(fake.accept()?.commit(peers()));
        assert_eq!(fake.status(), aborted);
        assert!(fake.is_done(State::Idle, 3));

        let fake = Fake::new(State::ConnRecv)?;
        drop(fake.accept()?.commit(peers()).connected(Depths::new(1, 1)));
        assert_eq!(fake.status(), aborted);
        assert!(fake.is_done(State::Idle, 3));
        Ok(())
    }

    #[test]
    fn without_memory_the_end_is_told_without_data() -> Result {
        let fake = Fake::new(State::ConnSent)?;
        fake.no_memory.set(true);
        let handle = Handle::new(7).ok_or(EINVAL)?;
        let connecting = fake.connect()?.commit(handle);
        let depths = Depths::new(1, 1);
        assert!(connecting.connected(&peers(), depths, data(b"x")).is_err());
        assert_eq!(fake.status(), Some(ENOMEM.to_errno()));
        assert!(fake.is_done(State::Idle, 1));

        let fake = Fake::new(State::ConnSent)?;
        fake.no_memory.set(true);
        let handle = Handle::new(7).ok_or(EINVAL)?;
        let connecting = fake.connect()?.commit(handle);
        connecting.failed(ECONNREFUSED, Depths::NONE, data(b"x"));
        assert_eq!(fake.status(), Some(ECONNREFUSED.to_errno()));
        assert!(fake.is_done(State::Idle, 1));
        Ok(())
    }

    #[test]
    fn requests_carry_their_number() -> Result {
        let fake = Fake::new(State::Listen)?;
        let listening = ListenCall::new(fake.id()?, addr(1), false, None).commit();
        let handle = Handle::new(77).ok_or(EINVAL)?;
        listening.request(handle, &peers(), Depths::new(1, 1), data(b"x"))?;
        assert_eq!(fake.provider_data.get(), 77);
        fake.no_memory.set(true);
        let again = listening.request(handle, &peers(), Depths::new(1, 1), data(b"x"));
        assert!(again == Err(ENOMEM));
        listening.request(handle, &peers(), Depths::new(1, 1), PrivateData::NONE)?;
        drop(listening);
        assert!(fake.is_done(State::Listen, 2));
        Ok(())
    }

    #[test]
    fn private_data_is_whole_or_none() {
        let octets = [7; 256];
        assert!(PrivateData::new(&octets).is_none());
        let most = octets.get(..255).unwrap_or_default();
        assert!(PrivateData::new(most).is_some());
    }
}
