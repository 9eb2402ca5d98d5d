//! How long the path of a unix socket may be. Pure.

use std::io;
use std::path::{Path, PathBuf};

/// `sun_path` has 108 bytes, one of which ends it.
pub const MAX_SOCKET_PATH: usize = 107;

/// A path that no unix socket can have. The standard library says neither the limit nor the length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the socket's path {} has {} bytes, its last part {} of them; unix sockets allow at most {MAX_SOCKET_PATH}",
    path.display(), path.as_os_str().len(), path.file_name().unwrap_or_default().len()
)]
pub struct SocketPathTooLong {
    path: PathBuf,
}

impl From<SocketPathTooLong> for io::Error {
    fn from(error: SocketPathTooLong) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Whether a unix socket can have this path.
pub fn check_socket_path(path: &Path) -> Result<(), SocketPathTooLong> {
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(SocketPathTooLong { path: path.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_limit_is_that_of_the_operating_system() {
        let folder = tempfile::tempdir().unwrap();
        for (length, fits) in [(MAX_SOCKET_PATH, true), (MAX_SOCKET_PATH + 1, false)] {
            let path = folder.path().join("x".repeat(length - folder.path().as_os_str().len() - 1));
            assert_eq!(path.as_os_str().len(), length);
            assert_eq!(UnixListener::bind(&path).is_ok(), fits, "{length}");
            assert_eq!(check_socket_path(&path).is_ok(), fits, "{length}");
        }
    }

    #[test]
    fn a_refusal_names_the_limit_and_the_lengths() {
        let path = Path::new("/").join("d".repeat(66)).join("demo.csi-reg.sock".repeat(3));
        let told = check_socket_path(&path).unwrap_err().to_string();
        assert!(told.ends_with(" has 119 bytes, its last part 51 of them; unix sockets allow at most 107"), "{told}");
    }
}
