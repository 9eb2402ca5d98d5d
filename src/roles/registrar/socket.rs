//! The registration socket's file: put into the kubelet's directory by a rename, and removed only if it is still ours.
//!
//! ```text
//!   bind .<nine digits>  (the kubelet ignores it) ── chmod 0600 ── rename ──> <driver>-reg.sock
//! ```
//! - No umask: it belongs to the whole process, and another task may make a file at this moment (N20).
//! - No removal of an old file first: there is no moment without a listener, and the kubelet sees one create.
//! - A file is ours by device and inode: a path says nothing about who bound it.
//! - A process that is killed before the rename leaves its hidden socket: the driver's next announcement removes it.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::net::UnixListener;
use tracing::{info, warn};

use super::decide::Place;
use super::names;
use crate::process::{check_socket_path, error_chain};

/// A hidden socket has its final name within milliseconds. One of this age belongs to a process that was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Which file it is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// The path of a driver's registration socket.
pub(super) fn path(directory: &Path, driver: &str) -> PathBuf {
    directory.join(names::socket(driver))
}

/// What is at a path, if the file that we put there last is this one.
pub(super) fn look(directory: &Path, path: &Path, ours: Option<FileId>) -> Place {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Place::NotASocket,
        Ok(found) if ours == Some(FileId::of(&found)) => Place::Ours,
        Ok(_) => Place::AnotherSocket,
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::metadata(directory) {
            Ok(found) if found.is_dir() => Place::Nothing,
            Ok(_) => Place::NoDirectory,
            Err(error) if error.kind() == ErrorKind::NotFound => Place::NoDirectory,
            Err(error) => Place::Unreadable(error.to_string()),
        },
        Err(error) if error.kind() == ErrorKind::NotADirectory => Place::NoDirectory,
        Err(error) => Place::Unreadable(error.to_string()),
    }
}

/// Listens, and puts the socket at its path. A name that another instance has just bound, of 65536, is an error.
pub(super) fn announce(directory: &Path, driver: &str, random: u16) -> io::Result<(UnixListener, FileId)> {
    check_socket_path(&path(directory, driver))?;
    let hidden = directory.join(names::hidden_socket(driver, random));
    let listener = UnixListener::bind(&hidden)?;
    match place(&hidden, directory, driver) {
        Ok(id) => Ok((listener, id)),
        Err(error) => {
            // A file that cannot be removed either goes with a later announcement.
            let _ = fs::remove_file(&hidden);
            Err(error)
        }
    }
}

/// Removes hidden sockets that this driver's earlier processes have left behind. All other files stay. The time is that of the
/// directory's file system.
fn clear(directory: &Path, driver: &str, now: SystemTime) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(|name| names::is_hidden_socket(name, driver)) {
            continue;
        }
        let found = fs::symlink_metadata(entry.path())?;
        let age = now.duration_since(found.modified()?).unwrap_or_default();
        if found.file_type().is_socket() && age >= LEFT_BEHIND {
            fs::remove_file(entry.path())?;
            info!(path = %entry.path().display(), "removed a hidden socket that a killed process of this driver left behind");
        }
    }
    Ok(())
}

fn place(hidden: &Path, directory: &Path, driver: &str) -> io::Result<FileId> {
    fs::set_permissions(hidden, Permissions::from_mode(0o600))?;
    let found = fs::symlink_metadata(hidden)?;
    let id = FileId::of(&found);
    if let Err(error) = found.modified().and_then(|now| clear(directory, driver, now)) {
        warn!(directory = %directory.display(), error = error_chain(&error), "cannot look for sockets that were left behind");
    }
    // A rename replaces a file, too, whatever kind it has. It was looked at just now; only a directory is safe from it.
    fs::rename(hidden, path(directory, driver))?;
    Ok(id)
}

/// Removes the socket if it is still this one. Says whether it did.
pub(super) fn withdraw(path: &Path, ours: FileId) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if FileId::of(&found) == ours => fs::remove_file(path).map(|()| true),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::MAX_SOCKET_PATH;

    const DRIVER: &str = "demo.csi";

    fn listed(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[tokio::test]
    async fn n1_n20_a_socket_takes_the_place_of_a_stale_one_with_its_mode_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path(), DRIVER);
        assert_eq!(look(folder.path(), &path, None), Place::Nothing);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert_eq!(look(folder.path(), &path, None), Place::AnotherSocket);
        let (_listener, id) = announce(folder.path(), DRIVER, 1).unwrap();
        assert_eq!(look(folder.path(), &path, Some(id)), Place::Ours);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(listed(folder.path()), ["demo.csi-reg.sock"]);
        assert!(withdraw(&path, id).unwrap());
        assert_eq!(listed(folder.path()), Vec::<String>::new());
        assert!(!withdraw(&path, id).unwrap(), "nothing is there");
    }

    /// A umask belongs to the whole process: a file that another task makes at the same moment would get another mode.
    #[tokio::test]
    async fn n20_files_of_other_tasks_keep_their_mode_while_sockets_are_announced() {
        let folder = tempfile::tempdir().unwrap();
        let others = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        let make = |number: usize| {
            let path = others.path().join(number.to_string());
            fs::write(&path, "").unwrap();
            mode(&path)
        };
        let usual = make(0);
        std::thread::scope(|scope| {
            let making = scope.spawn(|| (1..2000).map(make).filter(|mode| *mode != usual).count());
            let mut announced = 0;
            while announced < 100 || !making.is_finished() {
                let (_listener, _) = announce(folder.path(), DRIVER, announced).unwrap();
                assert_eq!(mode(&path(folder.path(), DRIVER)), 0o600);
                announced += 1;
            }
            assert_eq!(making.join().unwrap(), 0);
        });
    }

    #[tokio::test]
    async fn hidden_sockets_that_were_left_behind_go_and_those_of_another_driver_stay() {
        let folder = tempfile::tempdir().unwrap();
        let bind = |name: &str| drop(std::os::unix::net::UnixListener::bind(folder.path().join(name)).unwrap());
        let left = names::hidden_socket(DRIVER, 1);
        for name in [&left, &names::hidden_socket("demo.csi.two", 1), ".vendor.sock", "demo.csi.two-reg.sock"] {
            bind(name);
        }
        fs::write(folder.path().join(names::hidden_socket(DRIVER, 2)), "precious").unwrap();
        let sorted = || {
            let mut names = listed(folder.path());
            names.sort();
            names
        };
        let before = sorted();
        let now = fs::symlink_metadata(folder.path().join(&left)).unwrap().modified().unwrap();
        clear(folder.path(), DRIVER, now + Duration::from_secs(59)).unwrap();
        assert_eq!(sorted(), before, "another instance may be about to announce it");
        clear(folder.path(), DRIVER, now + Duration::from_secs(60)).unwrap();
        let expected: Vec<_> = before.into_iter().filter(|name| *name != left).collect();
        assert_eq!(sorted(), expected);
    }

    #[tokio::test]
    async fn n23_a_path_of_107_bytes_is_announced_and_one_of_108_is_refused_with_both_lengths() {
        let folder = tempfile::tempdir().unwrap();
        // With the shortest name, a typical one and the longest: the hidden name must not be what is too long.
        for driver in ["d", "file.csi.storage.example-vendor.com", &"d".repeat(63)] {
            let room = MAX_SOCKET_PATH - folder.path().as_os_str().len() - names::socket(driver).len() - 2;
            let [fits, longer] = [room, room + 1].map(|length| folder.path().join("x".repeat(length)));
            fs::create_dir(&fits).unwrap();
            fs::create_dir(&longer).unwrap();
            assert_eq!(path(&fits, driver).as_os_str().len(), 107);
            let (_listener, id) = announce(&fits, driver, 1).unwrap();
            assert_eq!(look(&fits, &path(&fits, driver), Some(id)), Place::Ours);
            assert!(tokio::net::UnixStream::connect(path(&fits, driver)).await.is_ok(), "as the kubelet does");
            assert_eq!(listed(&fits), [names::socket(driver)]);

            let told = announce(&longer, driver, 1).unwrap_err().to_string();
            let last = names::socket(driver).len();
            let expected = format!("has 108 bytes, its last part {last} of them; unix sockets allow at most 107");
            assert!(told.contains(&expected), "{told}");
            assert_eq!(listed(&longer), Vec::<String>::new());
        }
    }

    #[tokio::test]
    async fn a_hidden_socket_that_another_instance_has_just_bound_stays_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let hidden = folder.path().join(names::hidden_socket(DRIVER, 1));
        let _other = UnixListener::bind(&hidden).unwrap();
        assert_eq!(announce(folder.path(), DRIVER, 1).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert!(hidden.exists());
        let (_listener, _) = announce(folder.path(), DRIVER, 2).unwrap();
        assert!(hidden.exists(), "it is younger than a minute");
    }

    #[tokio::test]
    async fn n13_the_socket_of_another_instance_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path(), DRIVER);
        let (_old, id) = announce(folder.path(), DRIVER, 1).unwrap();
        let (_new, other) = announce(folder.path(), DRIVER, 2).unwrap();
        assert_eq!(look(folder.path(), &path, Some(id)), Place::AnotherSocket);
        assert!(!withdraw(&path, id).unwrap());
        assert_eq!(look(folder.path(), &path, Some(other)), Place::Ours);
    }

    #[tokio::test]
    async fn n3_n6_files_in_the_way_and_missing_directories_are_seen_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path(), DRIVER);
        fs::write(&path, "precious").unwrap();
        assert_eq!(look(folder.path(), &path, None), Place::NotASocket);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(look(folder.path(), &path, None), Place::NotASocket);
        assert!(announce(folder.path(), DRIVER, 1).is_err(), "a directory is not replaced");
        assert_eq!(listed(folder.path()), ["demo.csi-reg.sock"]);
        let missing = folder.path().join("missing");
        assert_eq!(look(&missing, &missing.join("x"), None), Place::NoDirectory);
        assert!(announce(&missing, DRIVER, 1).is_err());
        assert!(!missing.exists());
    }
}
