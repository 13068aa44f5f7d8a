//! The plan of `lockkit run` for its shim, and its form as arguments.

use std::ffi::OsString;
use std::time::Duration;

/// What the shim has to do.
#[derive(Debug)]
pub(crate) struct Plan {
    /// From `SIGTERM` to `SIGKILL` for what the program left running.
    pub(crate) kill_after: Duration,
    /// The same when the lock is lost; the end of the program begins this long before the end of the lease.
    pub(crate) notice: Duration,
    /// Whether processes that the program leaves running may continue.
    pub(crate) leave: bool,
    /// Whether the program's group gets the foreground of the terminal at once.
    pub(crate) foreground: bool,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
}

impl Plan {
    /// The arguments behind [`ARGUMENT`](crate::shim::ARGUMENT).
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![
            self.kill_after.as_millis().to_string().into(),
            self.notice.as_millis().to_string().into(),
            u8::from(self.leave).to_string().into(),
            u8::from(self.foreground).to_string().into(),
        ];
        arguments.extend(self.command.iter().cloned());
        arguments
    }

    /// What [`Self::arguments`] made; `None` if it did not.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
        let kill_after = Duration::from_millis(number()?);
        let notice = Duration::from_millis(number()?);
        let leave = number()? != 0;
        let foreground = number()? != 0;
        let command: Vec<_> = arguments.collect();
        (!command.is_empty()).then_some(Self {
            kill_after,
            notice,
            leave,
            foreground,
            command,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_comes_out_as_it_went_in() {
        let plan = Plan {
            kill_after: Duration::from_millis(1500),
            notice: Duration::from_millis(500),
            leave: true,
            foreground: false,
            command: vec!["sh".into(), "-c".into(), "exit 3".into()],
        };
        let parsed = Plan::parse(plan.arguments().into_iter()).unwrap();
        assert_eq!(parsed.arguments(), plan.arguments());
        assert!(Plan::parse(["1", "0", "1", "0"].map(OsString::from).into_iter()).is_none());
        assert!(Plan::parse(std::iter::empty()).is_none());
    }
}
