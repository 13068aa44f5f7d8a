//! What `lockkit run` and its shim send each other: frames of nine bytes on a socket pair.
//!
//! Only `lockkit run` has the other end of the shim's socket, so that the end of the stream means that
//! `lockkit run` has ended, however it died.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use lockkit::clock::Moment;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};

/// The length of every frame: a tag and a number.
const FRAME: usize = 9;

type Frame = [u8; FRAME];

/// What `lockkit run` tells the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send this signal to the program: one that ends it to all its processes, another to its group.
    Signal(i32),
    /// The hold lasts until then. The first order, which starts the program, comes with files.
    Lease(Moment),
    /// The hold is lost: end all processes of the program.
    Lost,
}

impl Order {
    fn encode(self) -> Frame {
        match self {
            Self::Signal(number) => frame(b'k', number.unsigned_abs().into()),
            Self::Lease(until) => frame(b'l', until.as_nanos()),
            Self::Lost => frame(b'x', 0),
        }
    }

    fn decode(frame: Frame) -> Option<Self> {
        let (tag, number) = parse(frame);
        Some(match tag {
            b'k' => Self::Signal(i32::try_from(number).ok()?),
            b'l' => Self::Lease(Moment::from_nanos(number)),
            b'x' => Self::Lost,
            _ => return None,
        })
    }
}

/// What the shim tells `lockkit run`.
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
    fn encode(self) -> Frame {
        match self {
            Self::Started(pid) => frame(b'p', pid.unsigned_abs().into()),
            Self::Stopped(number) => frame(b't', number.unsigned_abs().into()),
            Self::Overdue => frame(b'o', 0),
            Self::Ended(End::Exited(code)) => frame(b'e', code.into()),
            Self::Ended(End::Killed(number)) => frame(b'd', number.unsigned_abs().into()),
            Self::Ended(End::NotStarted(errno)) => frame(b'n', errno.unsigned_abs().into()),
        }
    }

    fn decode(frame: Frame) -> Option<Self> {
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

/// Sends the first order, with files: standard input, and the lock if it is a file.
pub(crate) fn send_start(
    socket: &UnixStream,
    until: Moment,
    stdin: BorrowedFd<'_>,
    lock: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let frame = Order::Lease(until).encode();
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

/// The first order.
#[derive(Debug)]
pub(crate) struct Start {
    /// The hold lasts until then.
    pub(crate) until: Moment,
    /// The program's standard input.
    pub(crate) stdin: OwnedFd,
    /// The lock, if it is a file: it is held for as long as this is open.
    pub(crate) lock: Option<OwnedFd>,
}

/// Waits for the first order; `None` if `lockkit run` has ended.
pub(crate) fn receive_start(socket: &UnixStream) -> io::Result<Option<Start>> {
    let mut frame = [0; FRAME];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut frame)],
        &mut control,
        RecvFlags::empty(),
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
    // The program must not inherit the lock. No process is started before this line.
    for file in &files {
        fcntl_setfd(file, FdFlags::CLOEXEC)?;
    }
    let mut files = files.into_iter();
    match (Order::decode(frame), files.next()) {
        (Some(Order::Lease(until)), Some(stdin)) if received.bytes == FRAME => {
            let lock = files.next();
            Ok(Some(Start { until, stdin, lock }))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Sends an order. One that the shim does not read any longer is dropped.
pub(crate) fn send_order(socket: &UnixStream, order: Order) {
    let _ = send(socket, &order.encode(), SendFlags::DONTWAIT);
}

/// Reads the next order; `None` if `lockkit run` has ended.
pub(crate) fn read_order(socket: &UnixStream) -> Option<Order> {
    read(socket).and_then(Order::decode)
}

/// Writes a report. If `lockkit run` has ended, the next read says so.
pub(crate) fn write_report(mut socket: &UnixStream, report: Report) {
    let _ = socket.write_all(&report.encode());
}

/// Reads the next report; `None` if the shim has ended.
pub(crate) fn read_report(socket: &UnixStream) -> Option<Report> {
    read(socket).and_then(Report::decode)
}

fn read(mut socket: &UnixStream) -> Option<Frame> {
    let mut frame = [0; FRAME];
    socket.read_exact(&mut frame).ok()?;
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let orders = [
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
