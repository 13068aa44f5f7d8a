//! The cost of many holds that are only kept.

use std::time::Duration;

use async_trait::async_trait;

use super::cycle::name;
use super::{Probe, Reading};
use crate::failure::{Failure, Outcome};
use crate::report::{Unit, thousands};
use crate::side::Side;
use crate::target::{Target, with_option};
use crate::worker::{Answer, Order, Program, Role, Start, Worker, unexpected};

/// The longest time to take the holds.
const LIMIT: Duration = Duration::from_secs(5);

pub(super) struct Holds {
    program: Program,
    starts: [Start; 2],
    /// One of each side, while they hold.
    keepers: Vec<Worker>,
    counts: [usize; 2],
    bytes: [f64; 2],
    wanted: usize,
    full: bool,
    ttl: Duration,
    lost: usize,
}

impl Holds {
    pub(super) fn new(target: &Target, program: &Program, count: usize) -> Self {
        // Short leases, so that a short look sees a whole round of renewals.
        let ttl = Duration::from_secs(if count > 10_000 { 6 } else { 3 });
        let ttl = target.lease(ttl);
        let starts = Side::BOTH.map(|side| Start {
            url: with_option(&target.url, "ttl", &format!("{}ms", ttl.as_millis())),
            side,
            name: name(target, side, format_args!("holds-{count}")),
            role: Role::Keeper { ttl },
        });
        Self {
            program: program.clone(),
            starts,
            keepers: Vec::new(),
            counts: [0; 2],
            bytes: [0.0; 2],
            wanted: count,
            full: false,
            ttl,
            lost: 0,
        }
    }

    async fn read(&mut self, side: Side) -> Outcome<Vec<Reading>> {
        let answer = self.keepers[side as usize].hear().await?;
        let Answer::Window { used, lost } = answer else {
            return Err(unexpected(&answer));
        };
        self.lost = self.lost.max(lost);
        let count = f64::from(u32::try_from(self.counts[side as usize].max(1))?);
        // Over a whole lease, in which each is renewed three times, whatever the length of this look.
        let leases = self.span().as_secs_f64() / self.ttl.as_secs_f64();
        let each = used.as_secs_f64() / leases / count;
        let mut readings = vec![Reading::new(
            "processor time of a hold in one lease",
            Unit::Seconds,
            each,
        )];
        if side == Side::Lock {
            // What a client does with the default lease, of half a minute.
            readings.push(Reading::new(
                "of one core, at a lease of 30 s",
                Unit::Part,
                each * count / 30.0,
            ));
            if self.wanted >= 1000 {
                readings.push(Reading::new("memory of a hold", Unit::Bytes, self.bytes[0]));
            }
        }
        Ok(readings)
    }

    /// Between two renewals of a hold.
    fn span(&self) -> Duration {
        self.ttl / 3
    }
}

#[async_trait]
impl Probe for Holds {
    async fn measure(&mut self, side: Side, _span: Duration) -> Outcome<Vec<Reading>> {
        let span = self.span();
        self.keepers[side as usize]
            .say(&Order::Window { span })
            .await?;
        self.read(side).await
    }

    async fn wake(&mut self) -> Outcome {
        for start in &self.starts {
            self.keepers
                .push(Worker::start(&self.program, start).await?);
        }
        for side in Side::BOTH {
            let (count, limit) = (self.wanted, LIMIT);
            let order = Order::Fill { count, limit };
            let answer = self.keepers[side as usize].ask(&order).await?;
            let Answer::Filled { count, bytes, full } = answer else {
                return Err(unexpected(&answer));
            };
            self.counts[side as usize] = count;
            self.bytes[side as usize] = bytes;
            self.full |= full && side == Side::Lock;
        }
        Ok(())
    }

    fn rest(&mut self) {
        self.keepers.clear();
    }

    /// Both at the same time: each counts its own processor time.
    async fn round(&mut self, _first: Side, _span: Duration) -> Outcome<[Vec<Reading>; 2]> {
        let span = self.span();
        for keeper in &mut self.keepers {
            keeper.say(&Order::Window { span }).await?;
        }
        let lock = self.read(Side::Lock).await?;
        let readings = [lock, self.read(Side::Bare).await?];
        if self.counts[0] == 0 {
            return Err(Failure::new("nothing was held"));
        }
        Ok(readings)
    }

    fn note(&self) -> Option<String> {
        let mut note = format!("lease {:?}", self.ttl);
        let [held, _] = self.counts;
        if held < self.wanted {
            let held = thousands(held);
            let so_far = if self.full {
                format!(", {held}: a process may open no more files")
            } else {
                format!(", {held} were taken in {LIMIT:?}")
            };
            note.push_str(&so_far);
        }
        if self.lost > 0 {
            note.push_str(&format!(", {} lost", thousands(self.lost)));
        }
        Some(note)
    }
}
