//! The error of a socket that cannot be connected to: its path, and what lies beside it.
//!
//! The most frequent first failure is another name of the socket: drivers call it `csi.sock`, `csi-provisioner.sock` or `socket`.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// How many names are told.
const MOST: usize = 5;

/// The same error with the socket's path and, if nothing is there, the sockets in its folder.
pub(super) async fn explain(path: &Path, error: io::Error) -> io::Error {
    let kind = error.kind();
    let hint = match path.parent() {
        Some(folder) if kind == io::ErrorKind::NotFound => beside(folder).await,
        _ => String::new(),
    };
    io::Error::new(kind, format!("{}: {error}{hint}", path.display()))
}

async fn beside(folder: &Path) -> String {
    match sockets(folder).await {
        Ok(names) if names.is_empty() => "; that folder has no socket yet".to_owned(),
        Ok(mut names) => {
            names.sort();
            names.truncate(MOST);
            format!("; there is {} in that folder: name it as the endpoint", names.join(", "))
        }
        Err(error) => format!("; cannot list that folder ({error}): is the driver's volume mounted there?"),
    }
}

async fn sockets(folder: &Path) -> io::Result<Vec<String>> {
    let (mut entries, mut names) = (tokio::fs::read_dir(folder).await?, Vec::new());
    while let Some(entry) = entries.next_entry().await? {
        if entry.file_type().await.is_ok_and(|kind| kind.is_socket()) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::channel::Endpoint;

    async fn failure(path: &std::path::Path) -> String {
        let endpoint = Endpoint::parse(path.to_str().unwrap()).unwrap();
        endpoint.dial().dial().await.err().unwrap().to_string()
    }

    #[tokio::test]
    async fn the_error_of_a_wrong_name_has_the_path_and_the_sockets_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let told = failure(&socket).await;
        assert!(
            told.starts_with(socket.to_str().unwrap()) && told.ends_with("; that folder has no socket yet"),
            "{told}"
        );

        let _driver = UnixListener::bind(folder.path().join("csi.sock")).unwrap();
        std::fs::write(folder.path().join("notes.txt"), "no socket").unwrap();
        let told = failure(&socket).await;
        assert!(told.ends_with("; there is csi.sock in that folder: name it as the endpoint"), "{told}");

        let told = failure(&folder.path().join("missing/csi.sock")).await;
        assert!(told.contains("cannot list that folder"), "{told}");
    }
}
