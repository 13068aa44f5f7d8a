//! The plan of `lockkit run` for its shim, and its form as arguments.

use std::ffi::OsString;
use std::time::Duration;

use lockkit::clock::Moment;

/// What the shim has to do with the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// From `SIGTERM` to `SIGKILL`.
    pub(crate) kill_after: Duration,
    /// When the hold ends, unless its lease is renewed.
    pub(crate) deadline: Moment,
    /// Whether processes that the program leaves running may continue.
    pub(crate) leave: bool,
    /// Whether the program's group gets the foreground of the terminal at once.
    pub(crate) foreground: bool,
}

impl Plan {
    /// The arguments behind [`ARGUMENT`](crate::shim::ARGUMENT), and before the program.
    pub(crate) fn arguments(&self) -> [String; 4] {
        [
            self.kill_after.as_millis(),
            self.deadline.as_nanos().into(),
            self.leave.into(),
            self.foreground.into(),
        ]
        .map(|number| number.to_string())
    }

    /// Takes what [`Self::arguments`] made; `None` if it is not there.
    pub(crate) fn take(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || arguments.next()?.to_str()?.parse().ok();
        Some(Self {
            kill_after: Duration::from_millis(number()?),
            deadline: Moment::from_nanos(number()?),
            leave: number()? != 0,
            foreground: number()? != 0,
        })
    }
}
