//! A unix socket: removes a stale socket first, has the right mode from the start, and is removed at the end.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::net::{UnixListener, UnixStream};

use base::process::{BoxedIo, check_socket_path};

/// A listening unix socket. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    _file: File,
}

/// The socket's file, by inode: a successor at the same path is left alone.
#[derive(Debug)]
struct File {
    path: PathBuf,
    inode: u64,
}

impl Socket {
    /// Listens at `path` with permission bits `mode`.
    pub(super) async fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        remove_stale(path).await?;
        // Bound beside its place and moved there when ready: no client meets it with another mode.
        check_socket_path(path)?;
        let beside = beside(path);
        remove_stale(&beside).await?;
        let listener = UnixListener::bind(&beside)?;
        fs::set_permissions(&beside, Permissions::from_mode(mode))?;
        let inode = fs::symlink_metadata(&beside)?.ino();
        fs::rename(&beside, path)?;
        Ok(Self { listener, _file: File { path: path.to_owned(), inode } })
    }
}

/// A path beside a socket's, not longer than that: the socket's own may be as long as one can be.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let last = name.pop();
    name.push(if last == Some('~') { '_' } else { '~' });
    path.with_file_name(name)
}

/// Removes a socket that no one listens on. Anything else in the way is an error.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} is not a socket", path.display())));
    }
    if UnixStream::connect(path).await.is_ok() {
        let text = format!("another process listens on {}", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    fs::remove_file(path)
}

impl Stream for Socket {
    type Item = io::Result<BoxedIo>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.listener.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| Box::new(stream) as BoxedIo)))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            // Another process removed it first, which is as good.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::process::MAX_SOCKET_PATH;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_ours_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "the standard library leaves the file behind");
        let socket = Socket::bind(&path, 0o660).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(Socket::bind(&path, 0o600).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_socket_is_bound_wherever_its_path_is_short_enough_and_otherwise_the_error_names_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = |length: usize| dir.path().join("x".repeat(length - dir.path().as_os_str().len() - 1));
        for short in [path(MAX_SOCKET_PATH), dir.path().join("~"), dir.path().join("s")] {
            let _socket = Socket::bind(&short, 0o600).await.unwrap();
            assert!(UnixStream::connect(&short).await.is_ok());
        }
        let told = Socket::bind(&path(MAX_SOCKET_PATH + 1), 0o600).await.unwrap_err().to_string();
        assert!(told.contains("has 108 bytes") && told.contains("at most 107"), "{told}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_file_in_the_way_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        fs::write(&path, "precious").unwrap();
        assert_eq!(Socket::bind(&path, 0o600).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
