//! The registration socket's file: put into the kubelet's directory by a rename, and removed only if it is still ours.
//!
//! ```text
//!   bind .<driver>-reg.sock.<random>  (the kubelet ignores it) ── chmod 0600 ── rename ──> <driver>-reg.sock
//! ```
//! - No umask: it belongs to the whole process, and another task may make a file at this moment (N20).
//! - No removal of an old file first: there is no moment without a listener, and the kubelet sees one create.
//! - A file is ours by device and inode: a path says nothing about who bound it.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use super::decide::Place;
use super::names;

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
    let announced = place(&hidden, &path(directory, driver));
    if announced.is_err() {
        // It may not even be there.
        let _ = fs::remove_file(&hidden);
    }
    announced
}

fn place(hidden: &Path, path: &Path) -> io::Result<(UnixListener, FileId)> {
    let listener = UnixListener::bind(hidden)?;
    fs::set_permissions(hidden, Permissions::from_mode(0o600))?;
    let id = FileId::of(&fs::symlink_metadata(hidden)?);
    // A rename replaces a file, too, whatever kind it has. It was looked at just now; only a directory is safe from it.
    fs::rename(hidden, path)?;
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
