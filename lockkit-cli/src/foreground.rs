//! The terminal and its foreground process group.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this session.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: File,
    home: Pid,
}

impl Terminal {
    /// Opens it; `None` where there is none, as under cron.
    pub(crate) fn open() -> Option<Self> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOCTTY.bits().cast_signed())
            .open("/dev/tty")
            .ok()?;
        Some(Self {
            device,
            home: getpgrp(),
        })
    }

    /// Whether the process group of `lockkit run` is in the foreground.
    pub(crate) fn is_home(&self) -> bool {
        tcgetpgrp(&self.device).is_ok_and(|foreground| foreground == self.home)
    }

    /// Gives the foreground to `group` and says whether it has it.
    pub(crate) fn give(&self, group: Pid) -> bool {
        tcsetpgrp(&self.device, group).is_ok()
    }

    /// Takes the foreground for this process's own group. A background process can do it because `SIGTTOU` is
    /// blocked.
    pub(crate) fn take_back(&self) {
        // It fails if the terminal has hung up: then there is nothing to take.
        let _ = tcsetpgrp(&self.device, self.home);
    }
}
