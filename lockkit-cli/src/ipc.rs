//! What `lockkit run` and its shim say to each other: frames of nine bytes on a socket pair.
//!
//! The socket is also the life line. Only `lockkit run` has the other end, so that the end of the
//! stream means that it is gone, however it died.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use lockkit::clock::Moment;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The length of every frame: a tag and a number.
pub(crate) const FRAME: usize = 9;

/// One frame.
pub(crate) type Frame = [u8; FRAME];

/// What the shim is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Run the program, with the file that comes along as its standard input. The hold is good
    /// until then, and a second file that comes along is the lock itself.
    Start(Moment),
    /// Send this signal to the program: one that ends it to all its processes, another to its group.
    Signal(i32),
    /// The hold is good until then.
    Lease(Moment),
    /// The hold is lost: end all processes of the program.
    Lost,
}

impl Order {
    pub(crate) fn encode(self) -> Frame {
        match self {
            Self::Start(until) => frame(b's', until.as_nanos()),
            Self::Signal(number) => frame(b'k', number.unsigned_abs().into()),
            Self::Lease(until) => frame(b'l', until.as_nanos()),
            Self::Lost => frame(b'x', 0),
        }
    }

    pub(crate) fn decode(frame: Frame) -> Option<Self> {
        let (tag, number) = parse(frame);
        Some(match tag {
            b's' => Self::Start(Moment::from_nanos(number)),
            b'k' => Self::Signal(i32::try_from(number).ok()?),
            b'l' => Self::Lease(Moment::from_nanos(number)),
            b'x' => Self::Lost,
            _ => return None,
        })
    }
}

/// What the shim tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The program has begun as this process, which leads a process group.
    Started(i32),
    /// This signal has stopped the program.
    Stopped(i32),
    /// The lease is about to end without any word from `lockkit run`, and the shim ends the program.
    Overdue,
    /// The program has ended, and so has what it left running.
    Ended(End),
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Killed(i32),
    /// It never began: the system gave this error.
    NotStarted(i32),
}

impl Report {
    pub(crate) fn encode(self) -> Frame {
        match self {
            Self::Started(pid) => frame(b'p', pid.unsigned_abs().into()),
            Self::Stopped(number) => frame(b't', number.unsigned_abs().into()),
            Self::Overdue => frame(b'o', 0),
            Self::Ended(End::Exited(code)) => frame(b'e', code.into()),
            Self::Ended(End::Killed(number)) => frame(b'd', number.unsigned_abs().into()),
            Self::Ended(End::NotStarted(errno)) => frame(b'n', errno.unsigned_abs().into()),
        }
    }

    pub(crate) fn decode(frame: Frame) -> Option<Self> {
        let (tag, number) = parse(frame);
        let signed = i32::try_from(number).ok();
        Some(match tag {
            b'p' => Self::Started(signed?),
            b't' => Self::Stopped(signed?),
            b'o' => Self::Overdue,
            b'e' => Self::Ended(End::Exited(u8::try_from(number).ok()?)),
            b'd' => Self::Ended(End::Killed(signed?)),
            b'n' => Self::Ended(End::NotStarted(signed?)),
            _ => return None,
        })
    }
}

fn frame(tag: u8, number: u64) -> Frame {
    let mut frame = [tag; FRAME];
    frame[1..].copy_from_slice(&number.to_le_bytes());
    frame
}

fn parse(frame: Frame) -> (u8, u64) {
    let [tag, number @ ..] = frame;
    (tag, u64::from_le_bytes(number))
}

/// Sends [`Order::Start`] and files along with it: standard input, and the lock if it is a file.
pub(crate) fn send_start(
    socket: &UnixStream,
    until: Moment,
    stdin: BorrowedFd<'_>,
    lock: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let frame = Order::Start(until).encode();
    let fds: Vec<_> = std::iter::once(stdin).chain(lock).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&frame)],
        &mut control,
        SendFlags::empty(),
    )?;
    if sent == FRAME {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// What comes with [`Order::Start`].
#[derive(Debug)]
pub(crate) struct Start {
    /// The hold is good until then.
    pub(crate) until: Moment,
    /// The program's standard input.
    pub(crate) stdin: OwnedFd,
    /// The lock, if it is a file: it is held for as long as this is open.
    pub(crate) lock: Option<OwnedFd>,
}

/// Waits for [`Order::Start`]; `None` if `lockkit run` is gone.
pub(crate) fn receive_start(socket: &UnixStream) -> io::Result<Option<Start>> {
    let mut frame = [0; FRAME];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut frame)],
        &mut control,
        flags(),
    )?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            files.extend(fds);
        }
    }
    let mut files = files.into_iter();
    match (Order::decode(frame), files.next()) {
        (Some(Order::Start(until)), Some(stdin)) if received.bytes == FRAME => {
            let lock = files.next();
            close_on_exec(lock.as_ref())?;
            Ok(Some(Start { until, stdin, lock }))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn flags() -> RecvFlags {
    RecvFlags::CMSG_CLOEXEC
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn flags() -> RecvFlags {
    RecvFlags::empty()
}

/// Keeps the lock's file from the program, also where the system did not do it with the message.
fn close_on_exec(file: Option<&OwnedFd>) -> io::Result<()> {
    if let Some(file) = file {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(())
}

/// Reads the next order; `None` if `lockkit run` is gone.
pub(crate) fn read_order(mut socket: &UnixStream) -> Option<Order> {
    let mut frame = [0; FRAME];
    socket.read_exact(&mut frame).ok()?;
    Order::decode(frame)
}

/// Writes a report. Nobody may be there to read it, which the next read will tell.
pub(crate) fn write_report(mut socket: &UnixStream, report: Report) {
    let _ = socket.write_all(&report.encode());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let orders = [
            Order::Start(Moment::from_nanos(7)),
            Order::Signal(15),
            Order::Lease(Moment::from_nanos(u64::MAX)),
            Order::Lost,
        ];
        for order in orders {
            assert_eq!(Order::decode(order.encode()), Some(order));
        }
        let reports = [
            Report::Started(4711),
            Report::Stopped(20),
            Report::Overdue,
            Report::Ended(End::Exited(255)),
            Report::Ended(End::Killed(9)),
            Report::Ended(End::NotStarted(11)),
        ];
        for report in reports {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Order::decode([0; FRAME]), None);
    }

    #[test]
    fn files_travel_with_the_start() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut inside, outside) = UnixStream::pair().unwrap();
        let moment = Moment::from_nanos(7);
        send_start(&near, moment, outside.as_fd(), None).unwrap();
        drop(outside);
        let start = receive_start(&far).unwrap().unwrap();
        assert_eq!(start.until, moment);
        assert!(start.lock.is_none());
        let received = UnixStream::from(start.stdin);
        (&received).write_all(b"x").unwrap();
        let mut byte = [0];
        inside.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        send_start(&near, moment, far.as_fd(), Some(far.as_fd())).unwrap();
        assert!(receive_start(&far).unwrap().unwrap().lock.is_some());
        drop(near);
        assert!(receive_start(&far).unwrap().is_none());
    }
}
