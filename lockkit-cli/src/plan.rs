//! What `lockkit run` wants of its shim, and how it is written as arguments.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Pid;

/// What the shim is to do, as its arguments say it.
#[derive(Debug)]
pub(crate) struct Plan {
    /// From `SIGTERM` to `SIGKILL`.
    pub(crate) kill_after: Duration,
    /// Whether what the program leaves running is left alone.
    pub(crate) leave: bool,
    /// The process group of `lockkit run`.
    pub(crate) home: Pid,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
}

impl Plan {
    /// The arguments behind [`ARGUMENT`](crate::shim::ARGUMENT).
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![
            self.kill_after.as_millis().to_string().into(),
            u8::from(self.leave).to_string().into(),
            self.home.to_string().into(),
        ];
        arguments.extend(self.command.iter().cloned());
        arguments
    }

    /// What [`Self::arguments`] made; `None` if it did not.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
        let kill_after = Duration::from_millis(number()?);
        let leave = number()? != 0;
        let home = Pid::from_raw(i32::try_from(number()?).ok()?)?;
        let command: Vec<_> = arguments.collect();
        (!command.is_empty()).then_some(Self {
            kill_after,
            leave,
            home,
            command,
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpgrp;

    use super::*;

    #[test]
    fn a_plan_comes_out_as_it_went_in() {
        let plan = Plan {
            kill_after: Duration::from_millis(1500),
            leave: true,
            home: getpgrp(),
            command: vec!["sh".into(), "-c".into(), "exit 3".into()],
        };
        let parsed = Plan::parse(plan.arguments().into_iter()).unwrap();
        assert_eq!(parsed.arguments(), plan.arguments());
        assert!(Plan::parse(["1".into(), "0".into(), "1".into()].into_iter()).is_none());
        assert!(Plan::parse(std::iter::empty()).is_none());
    }
}
