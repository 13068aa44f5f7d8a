//! Which file systems are shared by machines.

use std::path::Path;

/// The kind of network file system that a directory is on, as far as is known. For stores outside of
/// this crate that lock files of one machine. An unknown file system is none: a wrong refusal of a local
/// disk would only do harm.
#[must_use]
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn network_fs(dir: &Path) -> Option<&'static str> {
    let stat = rustix::fs::statfs(dir).ok()?;
    // The field's type differs between platforms, its low 32 bits do not.
    kind(stat.f_type as u64 & 0xffff_ffff)
}

/// As on Linux, where file systems are known by number.
#[must_use]
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub const fn network_fs(_dir: &Path) -> Option<&'static str> {
    None
}

/// The magic numbers of `statfs(2)`. FUSE is among them because sshfs and the mounts of object
/// stores lock on their own machine only, and their number does not tell them from others.
#[cfg(any(target_os = "linux", target_os = "android"))]
const fn kind(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB/CIFS",
        0x0102_1997 => "9p",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x6573_5546 => "FUSE",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x1983_0326 => "BeeGFS",
        0x4750_4653 => "GPFS",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x786f_4256 => "a shared folder of VirtualBox",
        _ => return None,
    })
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;
    use crate::Outcome;
    use crate::stores::file::problem::Problem;

    #[test]
    fn knows_network_file_systems_by_number() {
        // From the manual page of statfs: NFS_SUPER_MAGIC, CIFS, V9FS, FUSE; ext4, tmpfs, overlay.
        for magic in [0x6969, 0xff53_4d42, 0x0102_1997, 0x6573_5546] {
            assert!(kind(magic).is_some(), "{magic:x}");
        }
        for magic in [0xef53, 0x0102_1994, 0x794c_7630] {
            assert_eq!(kind(magic), None, "{magic:x}");
        }
    }

    #[test]
    fn the_refusal_says_what_to_do() {
        let problem = Problem::NetworkFs {
            path: "/net/locks".into(),
            kind: "NFS",
        };
        assert_eq!(problem.outcome(), Outcome::Rejected);
        assert!(problem.to_string().contains("allow_network_fs(true)"));
    }
}
