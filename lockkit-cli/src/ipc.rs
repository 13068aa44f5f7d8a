//! What `lockkit run` and its shim send each other: messages of nine bytes on a socket pair.
//!
//! Only `lockkit run` has the other end of the shim's socket, so that the end of the stream means that
//! `lockkit run` has ended, however it died.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use lockkit::clock::Moment;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::AsyncReadExt;

/// A message as it is sent: a tag and a number.
type Frame = [u8; 9];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// To the shim: the hold lasts until then.
    Lease(Moment),
    /// To the shim: send this signal to the program, one that ends it to all its processes, another to its
    /// group.
    Signal(i32),
    /// To the shim: the hold is lost; end all processes of the program.
    Lost,
    /// From the shim: the program has begun as this process, which leads a process group.
    Started(i32),
    /// From the shim: a signal has stopped the program; or it has ended, and so has what it left running.
    Changed(ExitStatus),
    /// From the shim: the lease is about to end without any word from `lockkit run`, and the shim ends the
    /// program.
    Overdue,
}

impl Message {
    fn encode(self) -> Frame {
        let (tag, number) = match self {
            Self::Lease(until) => (b'l', until.as_nanos()),
            Self::Signal(number) => (b'k', number.unsigned_abs().into()),
            Self::Lost => (b'x', 0),
            Self::Started(pid) => (b'p', pid.unsigned_abs().into()),
            Self::Changed(status) => (b'c', status.into_raw().unsigned_abs().into()),
            Self::Overdue => (b'o', 0),
        };
        let mut frame = [tag; size_of::<Frame>()];
        frame[1..].copy_from_slice(&number.to_le_bytes());
        frame
    }

    fn decode(frame: Frame) -> Option<Self> {
        let [tag, number @ ..] = frame;
        let number = u64::from_le_bytes(number);
        let small = i32::try_from(number).ok();
        Some(match tag {
            b'l' => Self::Lease(Moment::from_nanos(number)),
            b'k' => Self::Signal(small?),
            b'x' => Self::Lost,
            b'p' => Self::Started(small?),
            b'c' => Self::Changed(ExitStatus::from_raw(small?)),
            b'o' => Self::Overdue,
            _ => return None,
        })
    }
}

/// One end of the socket pair, on a Tokio runtime.
#[derive(Debug)]
pub(crate) struct Link(tokio::net::UnixStream);

impl Link {
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(socket).map(Self)
    }

    /// Sends a message without waiting. One that the other side does not read any longer is dropped.
    pub(crate) fn send(&self, message: Message) {
        // Not Tokio's `try_write`, which fails until the runtime has polled the socket.
        let _ = rustix::io::write(&self.0, &message.encode());
    }

    /// The next message; `None` if the other side has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn receive(&mut self) -> Option<Message> {
        let mut frame = Frame::default();
        // A frame is written by one call, so that a read gets all of it.
        let read = self.0.read(&mut frame).await.ok()?;
        Message::decode(frame).filter(|_| read == frame.len())
    }
}

/// The most files that are sent.
pub(crate) const FILES: usize = 64;

/// Sends open files, before anything else.
pub(crate) fn send_files(socket: &UnixStream, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    // Files travel with at least one byte.
    let byte = [IoSlice::new(&[0])];
    sendmsg(socket, &byte, &mut control, SendFlags::empty())?;
    Ok(())
}

/// Waits for the files of [`send_files`]; none if `lockkit run` has ended.
pub(crate) fn receive_files(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut bytes, &mut control, RecvFlags::empty())?;
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
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_out_as_it_went_in() {
        for message in [
            Message::Lease(Moment::from_nanos(u64::MAX)),
            Message::Signal(15),
            Message::Lost,
            Message::Started(4711),
            Message::Changed(ExitStatus::from_raw(255 << 8)),
            Message::Overdue,
        ] {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        assert_eq!(Message::decode(Frame::default()), None);
    }
}
