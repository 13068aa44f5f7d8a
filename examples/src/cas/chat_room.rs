//! The members of a chat room, limited in number, and a log of events in order.

use lockkit::LockClient;
use lockkit::redis::{Command, Section};

use super::{Case, Db, Turn};
use crate::Outcome;

/// One room.
#[derive(Clone, Debug)]
pub struct ChatRoom {
    room: &'static str,
    seats: u64,
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Move {
    /// Enters, if there is a seat.
    Join,
    /// Leaves, if inside.
    Leave,
}

/// What is written, once it is known who is inside.
#[derive(Clone, Copy, Debug)]
struct Change {
    joins: bool,
    /// Counts what happened in the room.
    number: u64,
}

impl ChatRoom {
    /// A room with this number of seats.
    #[must_use]
    pub const fn new(room: &'static str, seats: u64) -> Self {
        Self { room, seats }
    }

    fn members(&self) -> String {
        format!("room:{}:members", self.room)
    }

    fn events(&self) -> String {
        format!("room:{}:events", self.room)
    }

    /// What follows from what was read; `None` if nothing changes.
    fn change(&self, what: Move, inside: bool, members: u64, events: u64) -> Option<Change> {
        let may = match what {
            Move::Join => !inside && members < self.seats,
            Move::Leave => inside,
        };
        may.then_some(Change {
            joins: what == Move::Join,
            number: events + 1,
        })
    }

    /// Before. Returns the number of retries.
    ///
    /// # Errors
    /// - If the server fails.
    pub async fn move_watched(&self, db: &mut Db, user: &str, what: Move) -> Outcome<u64> {
        let mut retries = 0;
        loop {
            let mut look = redis::pipe();
            let keys = [self.members(), self.events()];
            look.cmd("WATCH").arg(&keys).ignore();
            look.cmd("HEXISTS").arg(&keys[0]).arg(user);
            look.cmd("HLEN").arg(&keys[0]);
            look.cmd("LLEN").arg(&keys[1]);
            let (inside, members, events) = look.query_async(db).await?;
            let Some(change) = self.change(what, inside, members, events) else {
                redis::cmd("UNWATCH").exec_async(db).await?;
                return Ok(retries);
            };
            let mut write = redis::pipe();
            write.atomic();
            for words in self.words(user, change) {
                write.cmd(&words[0]).arg(&words[1..]);
            }
            let written: Option<redis::Value> = write.query_async(db).await?;
            if written.is_some() {
                return Ok(retries);
            }
            // Another client was faster.
            retries += 1;
        }
    }

    /// After.
    ///
    /// # Errors
    /// - If the server fails, or the lock was lost: then nothing was written.
    pub async fn move_locked(&self, locks: &LockClient, user: &str, what: Move) -> Outcome {
        let lock = locks.lock(format!("room/{}", self.room))?;
        // The same for all users: then each commit reads for the next.
        let section = Section::of(&lock)
            .read(Command::new("HKEYS").arg(self.members()))
            .read(Command::new("LLEN").arg(self.events()));
        let (entered, replies) = section.enter().await?;
        let members = replies[0].as_list();
        let inside = members.iter().any(|member| member.as_str() == Some(user));
        let members = u64::try_from(members.len())?;
        let events = u64::try_from(replies[1].as_int().unwrap_or(0))?;
        let change = self.change(what, inside, members, events);
        let commands = change.map(|change| self.words(user, change));
        let commands = commands.iter().flatten().map(|words| {
            let command = Command::new(&words[0]);
            words[1..].iter().fold(command, Command::arg)
        });
        entered.commit(&commands.collect::<Vec<_>>()).await?;
        Ok(())
    }

    fn words(&self, user: &str, change: Change) -> [Vec<String>; 2] {
        let (member, verb) = if change.joins {
            let since = change.number.to_string();
            (
                vec!["HSET".into(), self.members(), user.into(), since],
                "joined",
            )
        } else {
            (vec!["HDEL".into(), self.members(), user.into()], "left")
        };
        let event = format!("{}: {user} {verb}", change.number);
        [member, vec!["RPUSH".into(), self.events(), event]]
    }
}

impl Case for ChatRoom {
    const NAME: &'static str = "chat room";

    async fn reset(&self, db: &mut Db) -> Outcome {
        let keys = [self.members(), self.events()];
        Ok(redis::cmd("DEL").arg(&keys).exec_async(db).await?)
    }

    async fn watched(&self, db: &mut Db, turn: Turn) -> Outcome<u64> {
        let (user, what) = user_and_move(turn);
        self.move_watched(db, &user, what).await
    }

    async fn locked(&self, locks: &LockClient, turn: Turn) -> Outcome {
        let (user, what) = user_and_move(turn);
        self.move_locked(locks, &user, what).await
    }

    /// Who is inside, and the numbers of what happened, which must have no gap and no repeat.
    async fn state(&self, db: &mut Db) -> Outcome<Vec<String>> {
        let mut inside: Vec<String> = redis::cmd("HKEYS")
            .arg(self.members())
            .query_async(db)
            .await?;
        inside.sort();
        let events = redis::cmd("LRANGE")
            .arg(self.events())
            .arg(0)
            .arg(-1)
            .to_owned();
        let events: Vec<String> = events.query_async(db).await?;
        let numbers = events.iter().filter_map(|event| event.split(':').next());
        inside.extend(numbers.map(|number| format!("event {number}")));
        Ok(inside)
    }
}

/// In and out, and in again.
fn user_and_move(turn: Turn) -> (String, Move) {
    let what = if turn.number.is_multiple_of(2) {
        Move::Join
    } else {
        Move::Leave
    };
    (format!("user {}", turn.contender), what)
}
