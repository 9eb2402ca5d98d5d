//! The registration socket's file: put into the kubelet's directory by a rename, and removed only if it is still ours.
//!
//! ```text
//!   bind .<driver>-reg.sock.<random>  (the kubelet ignores it) ── chmod 0600 ── rename ──> <driver>-reg.sock
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
use crate::process::error_chain;

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

/// Listens, and puts the socket at its path. `suffix` is unique in the directory.
pub(super) fn announce(directory: &Path, driver: &str, suffix: &str) -> io::Result<(UnixListener, FileId)> {
    let hidden = directory.join(names::hidden_socket(driver, suffix));
    let announced = place(&hidden, directory, driver);
    if announced.is_err() {
        // It may not even be there.
        let _ = fs::remove_file(&hidden);
    }
    announced
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

fn place(hidden: &Path, directory: &Path, driver: &str) -> io::Result<(UnixListener, FileId)> {
    let listener = UnixListener::bind(hidden)?;
    fs::set_permissions(hidden, Permissions::from_mode(0o600))?;
    let found = fs::symlink_metadata(hidden)?;
    let id = FileId::of(&found);
    if let Err(error) = found.modified().and_then(|now| clear(directory, driver, now)) {
        warn!(directory = %directory.display(), error = error_chain(&error), "cannot look for sockets that were left behind");
    }
    // A rename replaces a file, too, whatever kind it has. It was looked at just now; only a directory is safe from it.
    fs::rename(hidden, path(directory, driver))?;
    Ok((listener, id))
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
        let (_listener, id) = announce(folder.path(), DRIVER, "a").unwrap();
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
                let (_listener, _) = announce(folder.path(), DRIVER, &announced.to_string()).unwrap();
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
        let others = [".demo.csi.two-reg.sock.a", ".demo.csi-reg.sock.two-reg.sock.a", "demo.csi.two-reg.sock"];
        for name in others {
            bind(name);
        }
        bind(".demo.csi-reg.sock.left");
        fs::write(folder.path().join(".demo.csi-reg.sock.file"), "precious").unwrap();
        let sorted = || {
            let mut names = listed(folder.path());
            names.sort();
            names
        };
        let before = sorted();
        let now = fs::symlink_metadata(folder.path().join(".demo.csi-reg.sock.left")).unwrap().modified().unwrap();
        clear(folder.path(), DRIVER, now + Duration::from_secs(59)).unwrap();
        assert_eq!(sorted(), before, "another instance may be about to announce it");
        clear(folder.path(), DRIVER, now + Duration::from_secs(60)).unwrap();
        let expected: Vec<_> = before.into_iter().filter(|name| name != ".demo.csi-reg.sock.left").collect();
        assert_eq!(sorted(), expected);
    }

    #[tokio::test]
    async fn n13_the_socket_of_another_instance_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path(), DRIVER);
        let (_old, id) = announce(folder.path(), DRIVER, "a").unwrap();
        let (_new, other) = announce(folder.path(), DRIVER, "b").unwrap();
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
        assert!(announce(folder.path(), DRIVER, "a").is_err(), "a directory is not replaced");
        assert_eq!(listed(folder.path()), ["demo.csi-reg.sock"]);
        let missing = folder.path().join("missing");
        assert_eq!(look(&missing, &missing.join("x"), None), Place::NoDirectory);
        assert!(announce(&missing, DRIVER, "a").is_err());
        assert!(!missing.exists());
    }
}
