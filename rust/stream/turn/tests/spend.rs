// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of what a turn is spent on: what is posted while somebody sends is sent soon.

use core::cell::Cell;

use kernel::prelude::*;

use super::super::*;

/// A stream, and those who come while one thread sends.
struct Play {
    turn: Turn,
    /// Runs that wait to be sent, and those that were.
    waiting: Cell<u32>,
    sent: Cell<u32>,
    /// How often the socket was held, and how often it is before it gets an owner.
    holds: Cell<u32>,
    holds_until_owned: u32,
    left_to_process: Cell<bool>,
    /// How often it was looked where the runs go.
    looks: Cell<u32>,
    /// Runs that another thread posts when the last one has been sent, while softirqs run, and
    /// while it has this CPU.
    late: Cell<u32>,
    in_softirqs: Cell<u32>,
    in_between: Cell<u32>,
    /// Who posted while softirqs ran, or while they had this CPU, may send.
    may_send_in_softirqs: Cell<bool>,
    may_send_in_between: Cell<bool>,
    /// Whether another thread is to have this CPU after each hold.
    crowded: bool,
}

impl Play {
    /// With so many runs to send.
    const fn new(waiting: u32) -> Self {
        Self {
            turn: Turn::new(),
            waiting: Cell::new(waiting),
            sent: Cell::new(0),
            holds: Cell::new(0),
            holds_until_owned: u32::MAX,
            left_to_process: Cell::new(false),
            looks: Cell::new(0),
            late: Cell::new(0),
            in_softirqs: Cell::new(0),
            in_between: Cell::new(0),
            may_send_in_softirqs: Cell::new(false),
            may_send_in_between: Cell::new(false),
            crowded: false,
        }
    }

    /// Another thread posts what `from` holds, and rings the doorbell. Whether it may send.
    fn others_post(&self, from: &Cell<u32>) -> bool {
        let runs = from.take();
        self.waiting.set(self.waiting.get().saturating_add(runs));
        runs != 0 && self.turn.take()
    }
}

/// The socket of a [`Play`]. Softirqs run when it goes.
struct PlayHold<'a>(&'a Play);

impl Drop for PlayHold<'_> {
    fn drop(&mut self) {
        if self.0.others_post(&self.0.in_softirqs) {
            self.0.may_send_in_softirqs.set(true);
        }
    }
}

/// Keeps the CPU. Another thread gets it when it goes.
struct PlayStay<'a>(&'a Play);

impl Drop for PlayStay<'_> {
    fn drop(&mut self) {
        if self.0.others_post(&self.0.in_between) {
            self.0.may_send_in_between.set(true);
        }
    }
}

impl<'p> Sender for &'p Play {
    type Stay = PlayStay<'p>;
    type Hold<'a>
        = PlayHold<'a>
    where
        Self: 'a;

    fn stay(&self) -> PlayStay<'p> {
        PlayStay(self)
    }

    fn hold(&self) -> Option<PlayHold<'_>> {
        if self.holds.get() == self.holds_until_owned {
            return None;
        }
        self.holds.set(self.holds.get() + 1);
        Some(PlayHold(self))
    }

    fn send_runs(&self, _: &mut PlayHold<'_>, runs: u32) -> Progress {
        let now = runs.min(self.waiting.get());
        self.sent.set(self.sent.get() + now);
        self.waiting.set(self.waiting.get() - now);
        if self.waiting.get() != 0 {
            return Progress::More;
        }
        self.others_post(&self.late);
        // As a stream: the last run of a budget may have been the last one of all.
        match now == runs {
            true => Progress::More,
            false => Progress::Wait,
        }
    }

    fn look_where_it_goes(&self, _: &mut PlayHold<'_>) {
        self.looks.set(self.looks.get() + 1);
    }

    fn is_due_elsewhere(&self) -> bool {
        self.crowded
    }

    fn leave_to_process(&self) {
        self.left_to_process.set(true);
    }
}

#[kunit_tests(rsiw_stream_spend)]
mod suite {
    use super::*;

    /// All of it, a few runs at a time.
    #[test]
    fn sends_all_there_is() {
        let play = Play::new(10);
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert_eq!(play.sent.get(), 10);
        assert_eq!(play.holds.get(), 10_u32.div_ceil(RUNS_PER_HOLD));
        assert!(!play.turn.is_taken());
    }

    /// Where runs go can be seen behind those of the same thread, when no other one had the CPU.
    #[test]
    fn looks_where_runs_go() {
        let play = Play::new(10);
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert_eq!(play.looks.get(), play.holds.get() - 1);

        let mut play = Play::new(10);
        play.crowded = true;
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert!(play.holds.get() > 1);
        assert_eq!(play.looks.get(), 0);

        let play = Play::new(10);
        assert!(play.turn.take());
        play.turn.go_away(now_ns().wrapping_sub(AWAY_NS + 1));
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert!(play.holds.get() > 1);
        assert_eq!(play.looks.get(), 0);
    }

    /// The rest of what a budget allows is left to whoever the caller asks.
    #[test]
    fn keeps_to_the_budget() {
        let play = Play::new(20);
        assert_eq!(play.turn.spend(&&play, 16), Progress::More);
        assert_eq!(play.sent.get(), 16);
        assert!(!play.turn.is_taken());
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert_eq!(play.sent.get(), 20);
        assert!(!play.turn.is_taken());
    }

    /// Who finds it taken sends nothing, and the other one is told.
    #[test]
    fn leaves_it_to_who_has_the_turn() {
        let play = Play::new(10);
        assert!(play.turn.take());
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert_eq!(play.holds.get(), 0);
        assert!(!play.turn.end());
    }

    /// Beside one who is away for too long, whose turn it stays, and who is told.
    #[test]
    fn sends_beside_one_who_is_away_for_long() {
        let play = Play::new(10);
        assert!(play.turn.take());
        play.turn.go_away(now_ns().wrapping_sub(AWAY_NS + 1));
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert_eq!(play.sent.get(), 10);
        play.turn.come_back();
        assert!(play.turn.is_taken());
        assert!(!play.turn.end());
        assert!(play.turn.end());
    }

    /// A socket that has an owner is waited for by a work item, which finds the turn free.
    #[test]
    fn does_not_wait_for_an_owner() {
        for holds in [0, 1, 2] {
            let mut play = Play::new(20);
            play.holds_until_owned = holds;
            assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
            assert!(play.left_to_process.get());
            assert_eq!(play.sent.get(), holds * RUNS_PER_HOLD);
            assert!(!play.turn.is_taken());
        }
    }

    /// Beside somebody, an owner is not a reason to give their turn away.
    #[test]
    fn gives_nobodys_turn_away() {
        let mut play = Play::new(20);
        play.holds_until_owned = 1;
        assert!(play.turn.take());
        play.turn.go_away(now_ns().wrapping_sub(AWAY_NS + 1));
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert!(play.left_to_process.get());
        play.turn.come_back();
        assert!(play.turn.is_taken());
    }

    /// What others post after the last look at the queue, and while softirqs run.
    #[test]
    fn looks_again_before_the_turn_ends() {
        let play = Play::new(5);
        play.late.set(2);
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert_eq!(play.sent.get(), 7);
        assert!(!play.turn.is_taken());

        let play = Play::new(5);
        play.in_softirqs.set(3);
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert!(!play.may_send_in_softirqs.get());
        assert_eq!(play.sent.get(), 8);
        assert!(!play.turn.is_taken());
    }

    /// With the budget at its end, whoever goes on with the rest is told, not forgotten.
    #[test]
    fn looks_again_within_the_budget() {
        let play = Play::new(7);
        play.late.set(3);
        assert_eq!(play.turn.spend(&&play, 8), Progress::More);
        assert_eq!(play.sent.get(), 7);
        assert!(!play.turn.is_taken());
        assert_eq!(play.turn.spend(&&play, 8), Progress::Wait);
        assert_eq!(play.sent.get(), 10);
    }

    /// What was left to a thread is not left there while another one has the CPU.
    #[test]
    fn hands_over_before_others_get_the_cpu() {
        let mut play = Play::new(12);
        play.crowded = true;
        play.in_softirqs.set(1);
        assert_eq!(play.turn.spend(&&play, 16), Progress::More);
        assert_eq!(play.holds.get(), 1);
        assert!(!play.turn.is_taken());
    }

    /// Nobody waits for a thread that does not run: they send themselves.
    #[test]
    fn has_no_turn_while_others_have_the_cpu() {
        let mut play = Play::new(12);
        play.crowded = true;
        play.in_between.set(1);
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert!(play.may_send_in_between.get());
        assert_eq!(play.holds.get(), 1);
        // It is theirs, and they were left word.
        assert!(!play.turn.end());
    }

    /// If nobody came meanwhile it goes on.
    #[test]
    fn goes_on_with_the_cpu() {
        let mut play = Play::new(10);
        play.crowded = true;
        assert_eq!(play.turn.spend(&&play, 16), Progress::Wait);
        assert_eq!(play.sent.get(), 10);
        assert_eq!(play.holds.get(), 10_u32.div_ceil(RUNS_PER_HOLD));
        assert!(!play.turn.is_taken());
    }
}
