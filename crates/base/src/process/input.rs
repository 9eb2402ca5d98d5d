//! Texts that people give: files, and the standard input under the name `-`.

use std::io::{self, Read as _};
use std::path::Path;

/// Whether a path stands for the standard input.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What messages call it.
pub fn name(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Reads it to its end. What is no text is an error that says where.
pub fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    if is_standard(path) {
        io::stdin().lock().read_to_end(&mut bytes)?;
    } else {
        bytes = std::fs::read(path)?;
    }
    text(bytes).map_err(|told| io::Error::new(io::ErrorKind::InvalidData, told))
}

/// The bytes as a text, or what is wrong with the first that are none.
fn text(bytes: Vec<u8>) -> Result<String, String> {
    let error = match String::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let (bytes, at) = (error.as_bytes(), error.utf8_error().valid_up_to());
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err("it is UTF-16: save it as UTF-8".to_owned());
    }
    let before = String::from_utf8_lossy(&bytes[..at]);
    let (line, last) = (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap_or_default());
    let column = last.chars().count() + 1;
    Err(format!("line {line}, column {column}: the byte 0x{:02x} is no UTF-8: save it as UTF-8", bytes[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_told_with_its_line_and_column() {
        let told = |bytes: &[u8]| text(bytes.to_vec());
        assert_eq!(told("a: ä\n".as_bytes()), Ok("a: ä\n".to_owned()));
        let latin = told(b"csi:\n\n  \xc3\xa4: \xfc\n").unwrap_err();
        assert_eq!(latin, "line 3, column 6: the byte 0xfc is no UTF-8: save it as UTF-8");
        assert_eq!(told(b"a\xc3").unwrap_err(), "line 1, column 2: the byte 0xc3 is no UTF-8: save it as UTF-8");
        assert_eq!(told(b"\xff\xfea\0").unwrap_err(), "it is UTF-16: save it as UTF-8");
    }
}
